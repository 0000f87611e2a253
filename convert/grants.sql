-- Who may use what of this extension. restrict.sql comes before it, so nobody but superusers has
-- what no line grants. All of it runs with the rights of its caller, who has to own the tables.

GRANT USAGE ON SCHEMA _snowflake_convert TO PUBLIC;

-- Its policies show each role the rows of its own tables. UPDATE of the whole table, or DELETE,
-- would let each role lock it, and hold up the conversions of others.
GRANT SELECT, INSERT ON _snowflake_convert.conversions TO PUBLIC;
GRANT UPDATE (pages_done, pages, rows_done, rows_per_second, started, updated, ended, filled, to_validate)
    ON _snowflake_convert.conversions TO PUBLIC;

GRANT EXECUTE ON FUNCTION
    snowflake_convert_functions(regclass[], regnamespace[]),
    snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint),
    snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean),
    snowflake_convert_undo(regclass[], regnamespace[])
TO PUBLIC;
GRANT EXECUTE ON PROCEDURE
    _snowflake_convert.snowflake_convert_backfill, _snowflake_convert.snowflake_convert_run, _snowflake_convert.snowflake_convert_swap,
    _snowflake_convert.run_with_locks(text, text[], integer, text),
    snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint),
    snowflake_convert_backfill(regclass, interval),
    snowflake_convert_run(text, text[], integer),
    snowflake_convert_swap(regclass[], regnamespace[], regclass, boolean, integer)
TO PUBLIC;

-- Functions that those above call. Each name is that of one function.
GRANT EXECUTE ON FUNCTION
    _snowflake_convert.alter_tables, _snowflake_convert.altered, _snowflake_convert.as_owner, _snowflake_convert.backfill_columns,
    _snowflake_convert.backfill_keys, _snowflake_convert.backfill_layout, _snowflake_convert.backfill_map,
    _snowflake_convert.backfill_obstacles, _snowflake_convert.backfill_time, _snowflake_convert.catalog_state,
    _snowflake_convert.check_backfill, _snowflake_convert.check_copying, _snowflake_convert.check_list, _snowflake_convert.check_obstacles,
    _snowflake_convert.column_roots, _snowflake_convert.columns, _snowflake_convert.copies, _snowflake_convert.copy_function,
    _snowflake_convert.copy_index, _snowflake_convert.copy_name, _snowflake_convert.copy_number, _snowflake_convert.dependents,
    _snowflake_convert.end_conversion, _snowflake_convert.functions, _snowflake_convert.grants, _snowflake_convert.hold,
    _snowflake_convert.index_columns, _snowflake_convert.index_expression, _snowflake_convert.is_copy_function,
    _snowflake_convert.is_copying, _snowflake_convert.keys, _snowflake_convert.groups, _snowflake_convert.literals, _snowflake_convert.lock_counts, _snowflake_convert.lock_room, _snowflake_convert.lockers,
    _snowflake_convert.node,
    _snowflake_convert.min_id, _snowflake_convert.moved_foreign_keys, _snowflake_convert.need_read_committed,
    _snowflake_convert.notes, _snowflake_convert.notes_of_keys, _snowflake_convert.notes_of_plan, _snowflake_convert.objects, _snowflake_convert.obstacles,
    _snowflake_convert.obstacles_of_columns, _snowflake_convert.obstacles_of_foreign_keys, _snowflake_convert.obstacles_of_locks,
    _snowflake_convert.obstacles_of_objects, _snowflake_convert.obstacles_of_old_rows, _snowflake_convert.obstacles_of_rights,
    _snowflake_convert.obstacles_of_tables, _snowflake_convert.online_obstacles, _snowflake_convert.plan,
    _snowflake_convert.portable, _snowflake_convert.reached, _snowflake_convert.remake, _snowflake_convert.remake_generated,
    _snowflake_convert.remake_statistics, _snowflake_convert.rows_as_owner, _snowflake_convert.run,
    _snowflake_convert.run_as_caller, _snowflake_convert.schema, _snowflake_convert.snowflake_convert,
    _snowflake_convert.snowflake_convert_functions, _snowflake_convert.snowflake_convert_plan, _snowflake_convert.snowflake_convert_steps,
    _snowflake_convert.snowflake_convert_undo, _snowflake_convert.steps,
    _snowflake_convert.swap, _snowflake_convert.swap_plan, _snowflake_convert.swap_result, _snowflake_convert.swaps, _snowflake_convert.tables, _snowflake_convert.tell,
    _snowflake_convert.wait_until, _snowflake_convert.wanted_default, _snowflake_convert.widened, _snowflake_convert.work_of
TO PUBLIC;
