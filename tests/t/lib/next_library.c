/* The library of the version that NextVersion.pm makes: one function, and all of the present
 * library, with which it is linked. A server finds what is not here in that one. So the
 * function is missing in the present library, as a new one would be. */
#include <stdint.h>

typedef struct { int api_version; } FunctionInfo;

const FunctionInfo *pg_finfo_snowflake_next_marker(void)
{
	static const FunctionInfo info = {1};
	return &info;
}

uintptr_t snowflake_next_marker(void *call)
{
	(void) call;
	return 1;
}
