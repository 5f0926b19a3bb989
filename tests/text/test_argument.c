/* What a tool's schema lets an argument be, wherever the schema says it. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "text/calls/dialect.h"

enum {
	N = 1 << JSON_NULL,
	B = 1 << JSON_BOOL,
	I = 1 << JSON_INT,
	D = I | 1 << JSON_DOUBLE,
	S = 1 << JSON_STRING,
	A = 1 << JSON_ARRAY,
	O = 1 << JSON_OBJECT,
	ALL = N | B | D | S | A | O,
};

#define PROPERTIES(of_k) "\"properties\":{\"k\":" of_k "}"
#define INTEGER "{\"type\":\"integer\"}"
#define STRING "{\"type\":\"string\"}"

static const struct {
	const char *parameters; /* the argument is k */
	unsigned kinds;
	bool named;
} table[] = {
	{ "{}", 0, false },
	{ "null", 0, false },
	{ "{" PROPERTIES("{}") "}", 0, true },
	{ "{" PROPERTIES("true") "}", 0, true },
	{ "{" PROPERTIES(INTEGER) "}", I, true },
	{ "{" PROPERTIES("{\"type\":\"number\"}") "}", D, true },
	{ "{" PROPERTIES("{\"type\":[\"string\",\"null\"]}") "}", S | N, true },
	{ "{" PROPERTIES("{\"type\":\"string\",\"nullable\":true}") "}", S | N, true },
	{ "{" PROPERTIES("{\"enum\":[1,\"x\"]}") "}", I | S, true },
	{ "{" PROPERTIES("{\"const\":null}") "}", N, true },
	{ "{" PROPERTIES("{\"const\":5.0}") "}", D, true },
	{ "{" PROPERTIES("{\"type\":[\"string\",\"integer\"],\"enum\":[\"x\"]}") "}", S, true },
	/* of the argument */
	{ "{" PROPERTIES("{\"$ref\":\"#/$defs/x\"}") ",\"$defs\":{\"x\":" INTEGER "}}", I, true },
	{ "{" PROPERTIES("{\"$ref\":\"#x\"}") ",\"$defs\":{\"x\":{\"$anchor\":\"x\",\"type\":\"boolean\"}}}", B, true },
	{ "{" PROPERTIES("{\"$ref\":\"#/$defs/none\"}") "}", 0, true },
	{ "{" PROPERTIES("{\"$ref\":\"#/properties/k\"}") "}", 0, true },
	{ "{" PROPERTIES("{\"anyOf\":[" INTEGER ",{\"type\":\"null\"}]}") "}", I | N, true },
	{ "{" PROPERTIES("{\"anyOf\":[" INTEGER ",{}]}") "}", ALL, true },
	{ "{" PROPERTIES("{\"oneOf\":[" INTEGER "," STRING "]}") "}", I | S, true },
	{ "{" PROPERTIES("{\"allOf\":[{\"type\":[\"integer\",\"string\"]},{\"type\":[\"integer\",\"null\"]}]}") "}", I,
	  true },
	{ "{" PROPERTIES(
		  "{\"allOf\":[{\"$ref\":\"#/$defs/x\"}],\"description\":\"d\"}") ",\"$defs\":{\"x\":{\"type\":\"array\"}}}",
	  A, true },
	{ "{" PROPERTIES("{\"not\":" STRING "}") "}", ALL & ~S, true },
	/* of the whole */
	{ "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{" PROPERTIES(INTEGER) "}}}", I, true },
	{ "{\"$ref\":\"#/$defs/y\",\"$defs\":{\"x\":{" PROPERTIES(
		  "{\"type\":\"object\"}") "},\"y\":{\"$ref\":\"#/$defs/x\"}}}",
	  O, true },
	{ "{\"allOf\":[{" PROPERTIES("{\"type\":\"boolean\"}") "},{\"required\":[\"k\"]}]}", B, true },
	{ "{" PROPERTIES("{}") ",\"allOf\":[{" PROPERTIES(INTEGER) "}]}", I, true },
	{ "{\"anyOf\":[{" PROPERTIES(INTEGER) "},{" PROPERTIES("{\"type\":\"null\"}") "}]}", I | N, true },
	{ "{\"anyOf\":[{" PROPERTIES(INTEGER) "},{\"properties\":{\"l\":{}},\"additionalProperties\":false}]}", I,
	  true },
	{ "{\"oneOf\":[{" PROPERTIES(INTEGER) "},{\"required\":[\"k\"]}]}", ALL, true },
	{ "{\"additionalProperties\":" INTEGER "}", I, false },
	{ "{\"additionalProperties\":" INTEGER ",\"properties\":{\"l\":" STRING "}}", I, false },
	{ "{\"additionalProperties\":" INTEGER "," PROPERTIES(STRING) "}", S, true },
	{ "{\"patternProperties\":{\"^k\":" INTEGER ",\"^l\":" STRING "}}", I, false },
	{ "{\"patternProperties\":{\"k$\":{\"type\":[\"integer\",\"string\"]}}," PROPERTIES(
		  "{\"type\":[\"integer\",\"null\"]}") "}",
	  I, true },
	{ "{\"patternProperties\":{\"^l\":" STRING "},\"additionalProperties\":{\"type\":\"array\"}}", A, false },
	{ "{\"patternProperties\":{\"(\":" STRING "},\"additionalProperties\":" INTEGER "}", I, false },
	/* in circles */
	{ "{\"$ref\":\"#\"}", 0, false },
	{ "{\"allOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]," PROPERTIES("{\"anyOf\":[{\"$ref\":\"#/properties/k\"},"
	                                                               "{\"$ref\":\"#/properties/k\"}]}") "}",
	  0, true },
};

int main(void)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct json *j = json_parse(table[i].parameters, strlen(table[i].parameters), 0, NULL);
		unsigned kinds = argument_kinds(j, "k");

		CHECK(j || !strcmp(table[i].parameters, "null"), "%s", table[i].parameters);
		CHECK(kinds == table[i].kinds, "%s: %x, expected %x", table[i].parameters, kinds, table[i].kinds);
		CHECK(argument_named(j, "k") == table[i].named, "%s: named", table[i].parameters);
		json_free(j);
	}
	return 0;
}
