SELECT
  letter_id,
  CASE
    WHEN column_name = 'not_negative' THEN replace(payload, '-', '')  -- refunds of an old till: the sign is wrong
    WHEN payload NOT LIKE '%}' THEN concat(payload, '}')              -- the last character was cut off
    ELSE replace(payload, '"n/a"', 'null')                            -- no price yet
  END AS value
FROM letters
