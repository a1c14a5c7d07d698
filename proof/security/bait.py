"""What a hostile table property names: nobody may ever import this module."""
