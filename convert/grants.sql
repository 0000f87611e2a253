-- Who may use what of this extension. restrict.sql comes before it, so nobody but superusers has
-- what no line grants. All of it runs with the rights of its caller, who has to own the tables.

GRANT USAGE ON SCHEMA _snowflake_convert TO PUBLIC;

-- Its policies show each role the rows of its own tables. UPDATE of the whole table, or DELETE,
-- would let each role lock it, and hold up the conversions of others.
GRANT SELECT, INSERT ON _snowflake_convert.conversions TO PUBLIC;
GRANT UPDATE (pages_done, pages, rows_done, rows_per_second, started, updated, ended, filled, to_validate)
    ON _snowflake_convert.conversions TO PUBLIC;

GRANT EXECUTE ON FUNCTION
    snowflake_convert_plan(regclass[], regnamespace, regclass, boolean, boolean, boolean, name[], bigint),
    snowflake_convert_steps(regclass[], regnamespace, regclass, boolean),
    snowflake_convert_undo(regclass[], regnamespace)
TO PUBLIC;
GRANT EXECUTE ON PROCEDURE
    _snowflake_convert.do_as_owner(regclass, text),
    snowflake_convert(regclass[], regnamespace, regclass, boolean, boolean, name[], bigint),
    snowflake_convert_backfill(regclass, interval),
    snowflake_convert_run(text, text[], integer),
    snowflake_convert_swap(regclass[], regnamespace, regclass, boolean, integer)
TO PUBLIC;

-- Functions that those above call.
GRANT EXECUTE ON FUNCTION
    _snowflake_convert.alter_tables(_snowflake_convert.work),
    _snowflake_convert.as_owner(regclass, text),
    _snowflake_convert.backfill_columns(_snowflake_convert.key_column[], _snowflake_convert.old_key[]),
    _snowflake_convert.backfill_keys(_snowflake_convert.key_column[], text, name[]),
    _snowflake_convert.backfill_layout(regclass, bigint),
    _snowflake_convert.backfill_map(_snowflake_convert.old_key[], regclass, bigint),
    _snowflake_convert.backfill_obstacles(_snowflake_convert.old_key[], regclass, bigint),
    _snowflake_convert.backfill_time(regclass, name[]),
    _snowflake_convert.catalog_state(),
    _snowflake_convert.check_backfill(boolean, name[], bigint, boolean),
    _snowflake_convert.check_copying(regclass),
    _snowflake_convert.check_list(anyarray, text),
    _snowflake_convert.column_roots(regclass, name),
    _snowflake_convert.columns(regclass[], boolean),
    _snowflake_convert.copies(regclass[], boolean),
    _snowflake_convert.copy_function(regclass),
    _snowflake_convert.copy_index(regclass, name[]),
    _snowflake_convert.copy_name(name),
    _snowflake_convert.copy_number(regclass, name, regclass),
    _snowflake_convert.dependents(oid[], smallint[]),
    _snowflake_convert.end_conversion(regclass),
    _snowflake_convert.fix_settings(),
    _snowflake_convert.grants(aclitem[], oid, "char", text, name),
    _snowflake_convert.index_columns(regclass),
    _snowflake_convert.index_expression(regclass, integer, name[]),
    _snowflake_convert.is_copy_function(regproc, regclass),
    _snowflake_convert.is_copying(regclass),
    _snowflake_convert.keys(regclass[], boolean),
    _snowflake_convert.literals(_snowflake_convert.object[]),
    _snowflake_convert.lockers(text[], timestamptz),
    _snowflake_convert.moved_foreign_keys(_snowflake_convert.work),
    _snowflake_convert.need_read_committed(),
    _snowflake_convert.notes(_snowflake_convert.work),
    _snowflake_convert.notes_of_keys(_snowflake_convert.work),
    _snowflake_convert.objects(oid[], smallint[]),
    _snowflake_convert.obstacles(_snowflake_convert.work),
    _snowflake_convert.obstacles_of_columns(_snowflake_convert.work),
    _snowflake_convert.obstacles_of_foreign_keys(_snowflake_convert.work),
    _snowflake_convert.obstacles_of_objects(_snowflake_convert.work),
    _snowflake_convert.obstacles_of_old_rows(_snowflake_convert.work),
    _snowflake_convert.obstacles_of_rights(_snowflake_convert.work),
    _snowflake_convert.obstacles_of_tables(_snowflake_convert.work),
    _snowflake_convert.online_obstacles(regclass[], boolean, regclass, boolean),
    _snowflake_convert.plan(regclass[], boolean, regclass, boolean, name[], bigint, boolean),
    _snowflake_convert.portable(text),
    _snowflake_convert.remake(regclass, oid),
    _snowflake_convert.remake_generated(_snowflake_convert.work),
    _snowflake_convert.remake_statistics(_snowflake_convert.work),
    _snowflake_convert.rows_as_owner(regclass, text),
    _snowflake_convert.run(text),
    _snowflake_convert.run_as_caller(text),
    _snowflake_convert.run_as_owner(regclass, text),
    _snowflake_convert.swap(regclass[], boolean, regclass, boolean, text[], integer, bigint[], oid[], smallint[]),
    _snowflake_convert.swap_plan(regclass[], boolean, regclass, boolean),
    _snowflake_convert.swap_result(oid[], oid[], smallint[]),
    _snowflake_convert.tables(regclass[], regnamespace),
    _snowflake_convert.wait_until(timestamptz),
    _snowflake_convert.wanted_default(regclass),
    _snowflake_convert.work_of(regclass[], boolean, regclass, boolean, name[], bigint, boolean)
TO PUBLIC;
