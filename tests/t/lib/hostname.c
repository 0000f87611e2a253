/*
 * The host name of a server under test: the value of FAKED_HOSTNAME. Preloaded into
 * servers, since a host name of its own would need a namespace, which needs root.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int
gethostname(char *name, size_t size)
{
	const char *faked = getenv("FAKED_HOSTNAME");

	if (faked == NULL)
	{
		int			(*real) (char *, size_t);

		*(void **) &real = dlsym(RTLD_NEXT, "gethostname");
		return real(name, size);
	}
	strncpy(name, faked, size);
	return 0;
}
