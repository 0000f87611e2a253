-- Who may use what of this extension. restrict.sql comes before it, so nobody but superusers has
-- what no line grants. All of it runs with the rights of its caller, who has to own the tables.

GRANT USAGE ON SCHEMA _snowflake_convert TO PUBLIC;

-- Its policies show each role the rows of its own tables. UPDATE of the whole table, or DELETE,
-- would let each role lock it, and hold up the conversions of others.
GRANT SELECT, INSERT ON _snowflake_convert.conversions TO PUBLIC;
GRANT UPDATE (pages_done, pages, rows_done, rows_per_second, started, updated, ended, filled, to_validate)
    ON _snowflake_convert.conversions TO PUBLIC;

GRANT EXECUTE ON FUNCTION
    snowflake_convert_candidates(regclass[], regnamespace[], boolean),
    snowflake_convert_functions(regclass[], regnamespace[]),
    snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint, text[]),
    snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean, text[]),
    snowflake_convert_undo(regclass[], regnamespace[])
TO PUBLIC;
GRANT EXECUTE ON PROCEDURE
    snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint, text[]),
    snowflake_convert_backfill(regclass, interval),
    snowflake_convert_run(text, text[], integer),
    snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer, text[])
TO PUBLIC;
-- What those above call: all that this script has made there, and nobody else can.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA _snowflake_convert TO PUBLIC;
