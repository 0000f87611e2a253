-- A key as `bigint` is, whose JSON is a string: JavaScript rounds numbers above 53 bits.
--
-- The type is stored as bigint and converts to it without a function, so that all operators,
-- indexes, statistics and functions of bigint serve it, and a column changes its type without
-- being written anew. It has no operators and no operator classes of its own: pg_upgrade would
-- lose those of both types, and a change of the type would rebuild every index. No function
-- takes this type but max(), min(), and those that convert it.
--
-- Its functions are PostgreSQL's: a database keeps its keys on a server without the library.
-- They are in schema _snowflake, since nobody calls them by their names.
CREATE TYPE snowflake;
CREATE FUNCTION _snowflake.snowflake_in(cstring) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8in';
COMMENT ON FUNCTION _snowflake.snowflake_in(cstring) IS 'internal: reads a decimal number as type snowflake';
CREATE FUNCTION _snowflake.snowflake_out(snowflake) RETURNS cstring
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8out';
COMMENT ON FUNCTION _snowflake.snowflake_out(snowflake) IS 'internal: writes type snowflake as a decimal number';
CREATE FUNCTION _snowflake.snowflake_recv(internal) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8recv';
COMMENT ON FUNCTION _snowflake.snowflake_recv(internal) IS 'internal: reads type snowflake in binary form, that of bigint';
CREATE FUNCTION _snowflake.snowflake_send(snowflake) RETURNS bytea
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8send';
COMMENT ON FUNCTION _snowflake.snowflake_send(snowflake) IS 'internal: writes type snowflake in binary form, that of bigint';
-- In the category of numbers, it has a common type with them; since it is not the preferred
-- type of that category, and bigint does not convert to it implicitly, bigint is that type.
CREATE TYPE snowflake (
    INPUT = _snowflake.snowflake_in, OUTPUT = _snowflake.snowflake_out,
    RECEIVE = _snowflake.snowflake_recv, SEND = _snowflake.snowflake_send,
    LIKE = pg_catalog.int8, CATEGORY = 'N', PREFERRED = false);
COMMENT ON TYPE snowflake IS 'a bigint whose JSON is a string; compares, sorts and joins as bigint does, by the same indexes';

CREATE CAST (snowflake AS bigint) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (snowflake AS bigint) IS 'the same bits: all that is for bigint takes it';
CREATE CAST (bigint AS snowflake) WITHOUT FUNCTION AS ASSIGNMENT;
COMMENT ON CAST (bigint AS snowflake) IS 'the same bits';

-- Literals and parameters of these types keep an expression at snowflake, as in coalesce(id, 0).
CREATE FUNCTION _snowflake.from_integer(integer) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int48';
COMMENT ON FUNCTION _snowflake.from_integer(integer) IS 'internal: converts integer to type snowflake';
CREATE CAST (integer AS snowflake) WITH FUNCTION _snowflake.from_integer(integer) AS IMPLICIT;
COMMENT ON CAST (integer AS snowflake) IS 'the same number';
CREATE FUNCTION _snowflake.from_smallint(smallint) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int28';
COMMENT ON FUNCTION _snowflake.from_smallint(smallint) IS 'internal: converts smallint to type snowflake';
CREATE CAST (smallint AS snowflake) WITH FUNCTION _snowflake.from_smallint(smallint) AS IMPLICIT;
COMMENT ON CAST (smallint AS snowflake) IS 'the same number';

-- No cast to or from numeric is implicit: -id, id % 2 and sum(id) would have two meanings.
CREATE FUNCTION _snowflake.from_numeric(numeric) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'numeric_int8';
COMMENT ON FUNCTION _snowflake.from_numeric(numeric) IS 'internal: converts numeric to type snowflake, rounded';
CREATE CAST (numeric AS snowflake) WITH FUNCTION _snowflake.from_numeric(numeric) AS ASSIGNMENT;
COMMENT ON CAST (numeric AS snowflake) IS 'the nearest whole number';
CREATE FUNCTION _snowflake.to_integer(snowflake) RETURNS integer
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int84';
COMMENT ON FUNCTION _snowflake.to_integer(snowflake) IS 'internal: converts type snowflake to integer';
CREATE CAST (snowflake AS integer) WITH FUNCTION _snowflake.to_integer(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS integer) IS 'the same number, or an error if it is out of the range';
CREATE FUNCTION _snowflake.to_numeric(snowflake) RETURNS numeric
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8_numeric';
COMMENT ON FUNCTION _snowflake.to_numeric(snowflake) IS 'internal: converts type snowflake to numeric';
CREATE CAST (snowflake AS numeric) WITH FUNCTION _snowflake.to_numeric(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS numeric) IS 'the same number';

-- Without these, max(id) would be a bigint, and its JSON a number. The library has them use an
-- index, see src/max_min.rs.
CREATE FUNCTION _snowflake.larger(snowflake, snowflake) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8larger';
COMMENT ON FUNCTION _snowflake.larger(snowflake, snowflake) IS 'internal: the step of max(snowflake)';
CREATE AGGREGATE max(snowflake) (SFUNC = _snowflake.larger, STYPE = snowflake, COMBINEFUNC = _snowflake.larger, PARALLEL = safe);
COMMENT ON AGGREGATE max(snowflake) IS 'the greatest value';
CREATE FUNCTION _snowflake.smaller(snowflake, snowflake) RETURNS snowflake
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8smaller';
COMMENT ON FUNCTION _snowflake.smaller(snowflake, snowflake) IS 'internal: the step of min(snowflake)';
CREATE AGGREGATE min(snowflake) (SFUNC = _snowflake.smaller, STYPE = snowflake, COMBINEFUNC = _snowflake.smaller, PARALLEL = safe);
COMMENT ON AGGREGATE min(snowflake) IS 'the smallest value';
