/* main.c - the program weft; src/cli/ is where it goes from here. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
	return cli_main(argc, argv);
}
