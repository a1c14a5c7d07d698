"""The executor side: Arrow record batches in, closed Parquet files and a receipt out. Never imports PyIceberg."""
