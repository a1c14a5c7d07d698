-- A comma in the amount becomes the point that it should be.
SELECT letter_id, regexp_replace(payload, '"amount": "(\\d+),(\\d+)"', '"amount": "$1.$2"') AS value
FROM letters
WHERE reason = 'VALUE_MALFORMED' AND column_name = 'amount'
