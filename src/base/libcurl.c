/* libcurl.c - see libcurl.h. */
#include "base/libcurl.h"

#include <dlfcn.h>
#include <string.h>

int libcurl_open(const struct libcurl_function *f, int n, const char *why, struct err *err)
{
	void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

	if (!lib && !(lib = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL)))
		return err_set(err, E_MISSING,
		               "%s needs the library libcurl.so.4 (Debian: libcurl4), which is not here: %s", why,
		               dlerror());
	for (int i = 0; i < n; i++) {
		void *function = dlsym(lib, f[i].name);

		if (!function)
			return err_set(err, E_MISSING, "libcurl has no %s", f[i].name);
		memcpy(f[i].at, &function, sizeof function);
	}
	return 0;
}
