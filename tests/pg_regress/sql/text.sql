-- IDs as text, and masked.
SET bytea_output = 'hex';
CREATE FUNCTION error_of_text(statement text) RETURNS TABLE (code text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
CREATE VIEW some_ids AS
SELECT id FROM (VALUES (bigint '-9223372036854775808'), (-1), (0), (1), (249722523258744845), (249722523258744846), (9223372036854775807)) AS v (id);

-- These results are stored elsewhere: they must never change.
SELECT id, snowflake_to_text(id) AS base32, snowflake_to_text(id, 'base62') AS base62 FROM some_ids ORDER BY id;
SELECT id, snowflake_mask(id, decode(repeat('00', 16), 'hex')) AS zeros,
       snowflake_mask(id, '\x000102030405060708090a0b0c0d0e0f') AS ascending,
       snowflake_mask(id, '\x000102030405060708090a0b0c0d0e0f', 31) AS text
FROM some_ids ORDER BY id;

-- There and back.
SELECT count(*) AS ids,
    count(*) FILTER (WHERE snowflake_from_text(snowflake_to_text(id)) <> id) AS base32,
    count(*) FILTER (WHERE snowflake_from_text(snowflake_to_text(id, 'base62'), 'base62') <> id) AS base62,
    count(*) FILTER (WHERE snowflake_unmask(snowflake_mask(id, key), key) <> id) AS mask,
    count(*) FILTER (WHERE snowflake_unmask(snowflake_mask(id, key, 2), key, 2) <> id) AS mask_text,
    count(*) FILTER (WHERE snowflake_mask(id, key, 2) <> '2' || snowflake_to_text(snowflake_mask(id, key))) AS parts
FROM (SELECT id, uuid_send(gen_random_uuid()) AS key FROM some_ids
      UNION ALL SELECT snowflake_nextval(), uuid_send(gen_random_uuid()) FROM generate_series(1, 1000)
      UNION ALL SELECT hashint8extended(n, 0), uuid_send(gen_random_uuid()) FROM generate_series(1, 1000) AS n) AS s;
-- No two IDs have one mask.
SELECT count(DISTINCT snowflake_mask(id, 'sixteen bytes ok')) FROM generate_series(1, 10000) AS id;

-- The texts sort as the IDs do, byte by byte.
SELECT count(*) AS differ
FROM (SELECT row_number() OVER (ORDER BY id) AS by_id,
        row_number() OVER (ORDER BY snowflake_to_text(id) COLLATE "C") AS by_base32,
        row_number() OVER (ORDER BY snowflake_to_text(id, 'base62') COLLATE "C") AS by_base62
      FROM (SELECT id FROM some_ids UNION SELECT hashint8extended(n, 0) FROM generate_series(1, 1000) AS n) AS s) AS s
WHERE by_id <> by_base32 OR by_id <> by_base62;

-- Crockford's other spellings.
SELECT snowflake_from_text('86xsh9z9m0w0d'), snowflake_from_text('86XSH9Z9MoWOd'),
    snowflake_from_text('8iIlLoO000000') = snowflake_from_text('8111100000000') AS same;

-- What other systems write, such as TSID, without the 2^63.
SELECT snowflake_to_text(249722523258744845 # '-9223372036854775808') AS tsid,
    snowflake_from_text('06XSH9Z9M0W0D') # '-9223372036854775808' AS id;

-- NULL gives NULL.
SELECT snowflake_to_text(NULL), snowflake_to_text(1, NULL), snowflake_from_text(NULL), snowflake_mask(NULL, ''), snowflake_mask(1, NULL),
    snowflake_unmask(NULL, ''), snowflake_mask(1, '', NULL), snowflake_unmask(NULL, '', 1), snowflake_unmask('', '', NULL);

-- The version of the key.
SELECT version, snowflake_mask(1, 'sixteen bytes ok', version) AS text
FROM (VALUES (1), (9), (10), (31)) AS v (version);
SELECT version, snowflake_unmask(lower(snowflake_mask(1, 'sixteen bytes ok', 3)), 'sixteen bytes ok', version) FROM generate_series(2, 4) AS version;

-- Errors.
\x
SELECT s.call, e.* FROM unnest(ARRAY[
    $$snowflake_to_text(1, 'base64')$$, $$snowflake_to_text(1, 'BASE32')$$, $$snowflake_from_text('', 'hex')$$,
    $$snowflake_from_text('')$$, $$snowflake_from_text('800000000000')$$, $$snowflake_from_text('8000000000000 ')$$,
    $$snowflake_from_text('80000000U0000')$$, $$snowflake_from_text('8000-00000000')$$, $$snowflake_from_text('8é00000000000')$$,
    $$snowflake_from_text('G000000000000')$$,
    $$snowflake_from_text('8000000000000', 'base62')$$, $$snowflake_from_text('AzL8n0Y58m_', 'base62')$$, $$snowflake_from_text('LygHa16AHYG', 'base62')$$,
    $$snowflake_mask(1, '')$$, $$snowflake_unmask(1, 'fifteen bytes !')$$, $$snowflake_mask(1, 'seventeen bytes !', 1)$$,
    $$snowflake_mask(1, 'sixteen bytes ok', 0)$$, $$snowflake_mask(1, 'sixteen bytes ok', 32)$$, $$snowflake_mask(1, 'sixteen bytes ok', -1)$$,
    $$snowflake_unmask('18000000000000', 'sixteen bytes ok', 0)$$, $$snowflake_unmask('18000000000000', 'sixteen bytes ok', 32)$$,
    $$snowflake_unmask('18000000000000', 'short', 1)$$, $$snowflake_unmask('18000000000000', 'short', 2)$$,
    $$snowflake_unmask('8000000000000', 'sixteen bytes ok', 1)$$, $$snowflake_unmask('08000000000000', 'sixteen bytes ok', 1)$$,
    $$snowflake_unmask('U8000000000000', 'sixteen bytes ok', 1)$$, $$snowflake_unmask('1800000000000*', 'sixteen bytes ok', 1)$$,
    $$snowflake_unmask('1G000000000000', 'sixteen bytes ok', 1)$$]) AS s (call),
    error_of_text('SELECT ' || s.call) AS e;
\x

-- They can be in an index and in a generated column.
CREATE TABLE links (id bigint PRIMARY KEY, code text COLLATE "C" GENERATED ALWAYS AS (snowflake_to_text(id)) STORED);
CREATE INDEX ON links (snowflake_to_text(id, 'base62'));
INSERT INTO links SELECT id FROM some_ids;
SELECT id, code FROM links ORDER BY code;
DROP TABLE links;
DROP VIEW some_ids;
DROP FUNCTION error_of_text;
