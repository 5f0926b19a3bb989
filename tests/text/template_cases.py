"""Small templates, one feature each, for template_oracle.py.

Jinja2 says what they must print; nothing here is taken from any model's template.
A case is a source, or (source, variables).  All see the messages, tools and
variables below.
"""

MESSAGES = [
    {"role": "system", "content": " Be kind. "},
    {"role": "user", "content": "Hi <b>there</b> & 'you'", "n": 1, "f": 1.0, "tags": ["x", "y"]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": {"a": 1, "B": [True, None, 2.5], "ü": "日本\n\"q\" \u007f\u0001"}}}]},
    {"role": "tool", "content": "{\"t\": 1.50, \"u\": [1, 2e3], \"v\": \"\\u00e9\"}"},
    {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": {"z": 1e100, "y": -0.0}}}}]
EXTRA = {
    "s": "hello world", "empty": "", "uni": "Straße ǆ İΣΑΣ ﬁ 日本 \U0001F600\u200b\u00a0end", "ws": " \t\n a b\u3000",
    "csv": "a,b,,c", "lines": "one\r\ntwo\n\nthree\u2028four\n", "n": 7, "m": -3, "z": 0, "f": 2.5, "big": 1e16, "small": 1.5e-7,
    "third": 0.1, "t": True, "no": False, "nil": None, "l": [3, 1, 2], "names": ["bob", "Alice", "carol", "alice"],
    "nested": [[1, 2], [3, [4, "x"]]], "d": {"b": 2, "A": 1, "c": {"x": [1, {"y": "deep"}]}},
    "objs": [{"n": "b", "v": 2, "k": {"q": 1}}, {"n": "a", "v": 1, "k": {"q": 2}}, {"n": "B", "v": 2}],
    "shadow": {"items": 1, "get": 2, "keys": [1], "x": 3}, "html": "<a href=\"x\">'&'</a>", "digits": "0123", "numeric": "٣²",
}

WHITESPACE = r"""
a {{ n }} b
a {{- n -}} b
a  {%- if t -%}  x  {%- endif -%}  b
{% if t %}
x
{% endif %}
y
---
  {% if t %}
  x
  {% endif %}
  y
---
  {%+ if t %}x{% endif +%}
y
---
{% if t -%}
   x
{%- endif %}
y
---
a
  {# comment #}
b
---
a {# c #} b {#- d -#} c
---
{#
 many
 lines #}
x
---
x{% raw %}{{ not }} {% this %}{% endraw %}y
---
x {%- raw -%}  {{ not }}  {%- endraw -%} y
---
  {% raw %}
 a {{ }}
  {% endraw %}
b
---
{% set x = 1 %}


{{ x }}
---
{{ "a" }}
{{ "b" }}

---
x{{ '\n' }}

---
	{% if t %}	x	{% endif %}	y
---
a
   {%- if t %}
   b
   {%- endif %}
---
{% for i in l %}
{{ i }}
{% endfor %}
---
{% for i in l -%}
    {{ i }},
{%- endfor %}
---
{%if t%}x{%endif%}
---
{%- if t -%}x{%- endif -%}
---
{{- 'x' }}   {{ 'y' -}}   
   z
---
a{#- -#}b{##}c{#-#}d
---
{{ 'a' }}{% if t %}{% endif %} {{ 'b' }}
---
  a  {%  if   t  %}  b  {%  endif  %}  c
---
{% if t: %}colon{% endif %}
---
{% raw %}{% endraw %}{% raw -%} x {% endraw %}
---
line1
    {%- set x = 1 -%}
line2
---
é {%- if t %} ü{% endif %}
---
 {{ n }}  {% set a = 1 %}  {{ n }}
"""

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 // -2
-7 // 2
7 % 3 ~ ',' ~ (-7) % 3 ~ ',' ~ 7 % -3
-7 % 3
7 / 2
6 / 3
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
7.5 // 2
-7.5 % 2
7.5 % -2
1e3
1.0
1e16
1e15
123456789012345680.0
1.5e-5
0.0001
0.00001
1e100
5e-324
1.7976931348623157e308
0.1 + 0.2
100.0 * 1.1
1_000 + 0x1F + 0b101 + 0o17
1 / 0
1 // 0
1 % 0
1.0 % 0
t + 1
True + True
'a' + 'b'
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ {'a': 1}
'ab' * 3
3 * 'ab'
[1, 2] * 2
[1] + [2]
(1,) + (2, 3)
'a' + 1
1 + 'a'
none + 'a'
[1] + 'a'
undef + 'a'
'a' ~ undef
-undef
-'a'
+n
- - n
not t
not undef
not not n
t and n
no or n
'' or 'x'
z and 1
1 if t else 2
1 if no else 2
1 if no
(1 if no) is defined
'a' if no else 'b' if no else 'c'
1 if t else undef.x
1 < 2
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 != 1 == 1
1 == 1.0
1 == true
0 == false
'a' < 'b'
'a' < 1
none < 1
undef < 1
undef == undef2
undef == none
undef != 1
[1, 2] == [1, 2]
[1, 2] < [1, 3]
[1, 2] < [1, 2, 0]
(1, 2) == [1, 2]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
messages[0] == messages[0]
messages[0] == messages[1]
1 in l
5 not in l
'ell' in s
'' in s
1 in s
'a' in d
'A' in d
1 in none
1 in 5
1 in undef
undef in l
[1] in [[1], 2]
[1] in d
not 1 in l
'x' in 'xyz' and 'y' in 'xyz'
l[0]
l[-1]
l[10]
l[10] is defined
l['x']
l[1.0]
l[true]
s[0]
s[-1]
s[100]
uni[0:3]
uni[-3:]
uni[4]
s[1:4]
s[:3]
s[3:]
s[-3:]
s[:-3]
s[::-1]
s[::2]
s[8:2:-2]
s[-2::-3]
s[2:2]
s[5:2]
s[100:]
s[:100]
s[-100:3]
uni[::-1]
uni[1:9:2]
l[::-1]
l[1:]
l[:1]
l[-1:]
l[::2]
l[5:1:-1]
l[:-10:-1]
(1, 2, 3)[1:]
s['a':]
s[undef:]
s[1.0:]
l[::0]
undef[1:]
nil[1:]
n[1:]
d[1:]
d.A
d['A']
d.c.x[1].y
d['c']['x'][1]['y']
d.missing
d.missing.more
d['missing']['more']
d.missing is defined
d.c.x.0
shadow.items is callable
shadow['items']
shadow.x
d['items'] is defined
d['items']()|list
undef
undef.x
undef['x']
undef()
none.x
none.x.y
5 .x
n.x
s.x
s.nothing is defined
[]
[1, 'a', none, true, 1.5, [], {}, ()]
['it''s', "a'b", 'a"b', "a'b\"c", 'a\nb\t\\', '日本', 'é\u200b\u00a0']
(1,)
(1, 2)
()
{}
{'a': 1, 2: 'b', none: [], true: 1.0, (1, 2): 3}
{'a': 1, 'a': 2}
{1: 'a', 1.0: 'b', true: 'c'}
{[1]: 2}
{'a': {'b': {'c': []}}}.a.b
[1, 2, 3,]
{'a': 1,}
'con' 'cat' "enated"
'\x41\u00e9\U0001F600\101\q\'\"'
'a\
b'
"new
line"
true, false, none
True, False, None
n, s
-n
(n)
((n))
[n, m][z]
{'x': s}['x']
range(5)
range(5)|list
range(2, 10, 3)|list
range(5, 0, -2)|list
range(0)|list
range(3)[1]
range(3)[-1]
range(3)|length
2 in range(3)
range(1, 10, 4)
range(10)[2:8:3], range(10)[::-1], range(10)[5:2], range(1, 20, 5)[1:]|list
9223372036854775807 in range(-9, 9), -8 in range(9, -9, -1)
range(-9223372036854775807, 9223372036854775807, 9223372036854775806)|list
'ab'|safe|list
range(1000000)
range()
range(1, 2, 0)
dict(a=1, b='x')
dict({'a': 1}, b=2)
dict([('a', 1), ['b', 2]])
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace(a=1).missing
namespace(a=1)['a']
namespace(a=1)
l.index(1)
l.count(2)
l.append(1)
l.append is defined
d.update({'x': 1})
d.pop('A')
d.copy()
d.keys()
d.values()
d.items()
d.items()|length
d.keys()|list
d.keys()[0]
'A' in d.keys()
1 in d.values()
('A', 1) in d.items()
d.get('A')
d.get('nope')
d.get('nope', 'dflt')
d.get()
d.get([1])
big, small, third, f
messages[1].f, messages[1].n
[big, small, -0.0]
raise_exception('no: ' ~ n)
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y %H:%M:%S %A %B %j %%')
strftime_now('')
"%s and %d" % ('x', 5)
"%s" % s
"%s" % [1, 2]
"%5.2f|%-6s|%06d|%+d|%x|%X|%o|%e|%g|%c|%%|%r" % (3.14159, 'ab', 42, 7, 255, 255, 8, 12345.678, 0.0001, 'z', 'q')
"%(a)s %(b)05.1f" % {'a': 1, 'b': 2.25}
"%s %s" % 'x'
"%s" % ('a', 'b')
"%d" % 'x'
"%d" % 2.9
"%.3s|%10s|%-10s|" % ('abcdef', 'r', 'l')
"%#x %#o" % (255, 8)
"% d" % 5
"%i" % true
"%z" % 1
"%" % 1
"{} {}".format(1, 'a')
"{0}{1}{0}".format('a', 'b')
"{x} {{}}".format(x=5)
"{}".format()
"{".format(1)
"<b>"|safe + "<i>"
"<i>" + "<b>"|safe
"<b>"|safe ~ "<i>"
("<b>"|safe + html)|length
("<b>"|safe)|upper + "<"
("<b> "|safe).strip() + "<"
("a<b>"|safe).split('<')
("%s" | safe) % "<x>"
("<>"|safe)[0] + '<'
"<b>"|safe * 2
['<b>'|safe]
("<b>"|safe).replace('b', '<') + '&'
"<b>"|safe|string + "<"
"<b>"|safe|trim + "<"
"<b>"|safe is string
"<b>"|safe == "<b>"
html|e
html|escape|escape
"x" is escaped, "x"|safe is escaped
loop
loop.index
self_undefined_name is defined
"a" "b"|upper
'a'|upper + 'b'
n|string + 'x'
-n|abs
-1|abs
(-1)|abs
2 + 3|string|length
not n is defined
n is defined and s is string
n is not none
messages[0].content|trim
messages|length > 3
messages[-1].role
messages[-1]['content'][0].text
messages[-1].content[1]['type']
messages[10].role
tools[0].function.parameters
tools|tojson
"a" == 'a' == "a"
'a' in ['a'] == true
"é" < "z"
"日本" > "日"
[[1, 2], [1]] > [[1]]
none == none
none is none
[] or 'e'
{} or 'e'
0.0 or 'z'
'0' and 'nonempty'
range(0) or 'r'
1.e5
5 // 0.3
2 ** 0.5
(-8) ** 2
10 ** 18
7 // -2.0
-0.0
1 - 1.0
0 * -1.0
1 .__class__
''.__class__.__mro__
''['__class__']
d.__len__
"a".upper is callable
"x".upper()
"%s" % undef
undef % 2
"""

FILTERS = r"""
s|upper
s|lower
s|title
s|capitalize
uni|upper
uni|lower
uni|title
uni|capitalize
uni|length
'ΑΣ ΑΣΑ Σ'|lower
"it's a-b (c) d"|title
ws|trim
s|trim('hd')
ws|trim|length
s|replace('o', '0')
s|replace('o', '0', 1)
s|replace('', '-')
s|replace('zz', '-')
n|replace('7', '8')
s|length
l|length
d|length
undef|length
n|length
none|length
(l|map('string'))|length
s|count
s|list
uni|list
l|list
d|list
undef|list
none|list
l|first
s|first
[]|first
[]|first is defined
d|first
l|last
s|last
d|last
[]|last
undef|last
(l|select)|last
(l|select)|first
l|join
l|join(', ')
d|join('-')
s|join('.')
undef|join
none|join
objs|join(',', attribute='n')
[1, none, true, [1]]|join('|')
l|join(1)
l|sort
l|sort(reverse=true)
names|sort
names|sort(case_sensitive=true)
objs|sort(attribute='n')|map(attribute='n')|list
objs|sort(attribute='v,n')|map(attribute='n')|list
objs|sort(attribute='v', reverse=true)|map(attribute='n')|list
[1, 'a']|sort
['b', none]|sort
[3, 1.5, true]|sort
nested|sort
d|dictsort
d|dictsort(true)
d|dictsort(false, 'value')
{'a': 3, 'b': 1, 'c': 2}|dictsort(by='value')
{'a': 3, 'b': 1}|dictsort(reverse=true)
d|dictsort(by='nope')
l|dictsort
undef|dictsort
d|items|list
undef|items|list
(l|items) is iterable
l|items|list
names|unique|list
names|unique(case_sensitive=true)|list
[1, 1.0, true, '1', none, none]|unique|list
objs|unique(attribute='v')|map(attribute='n')|list
[[1]]|unique|list
l|min, l|max
names|min, names|max
[]|max
objs|max(attribute='v')
l|sum
[0.1, 0.2]|sum
l|sum(start=10)
objs|sum(attribute='v')
names|sum
l|reverse|list
s|reverse
l|reverse is sequence
d|reverse|list
l|batch(2)|list
l|batch(2, 'x')|list
s|default('x')
undef|default('x')
undef|default
empty|default('x')
empty|default('x', true)
empty|d('x', boolean=true)
none|default('x')
d.nope|default('n')
d.nope.x|default('n')
n|string ~ f|string ~ t|string ~ nil|string ~ l|string
undef|string
'42'|int
'42.9'|int
' 42 '|int
'x'|int
'x'|int(-1)
'0x1f'|int(base=16)
'ff'|int(0, 16)
none|int
l|int
f|int
t|int
undef|int
'1_000'|int
'2.5'|float
'abc'|float
'1e3'|float
'inf'|float
none|float(1.5)
n|float
n|abs, m|abs, f|abs
s|abs
2.5|round
3.5|round
2.675|round(2)
-1.5|round
42.55|round(1, 'floor')
42.55|round(1, 'ceil')
n|round
n|round(2)
1234.567|round(-2)
1e300|round(3)
'x'|round
2|round('ceil')
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, true, true)
lines|indent('> ')
lines|indent(width=1, first=true, blank=false)
'a\n\nb\n'|indent(3)
'a\n\nb'|indent(3, blank=true)
''|indent(2, true)
n|indent
l|map('string')|list
names|map('upper')|list
names|map('replace', 'a', 'A')|list
objs|map(attribute='n')|join
objs|map(attribute='k.q')|list
objs|map(attribute='k.q', default='none')|list
objs|map(attribute='zz', default=5)|list
nested|map(attribute=0)|list
nested|map(attribute='1')|list
nested|map('first')|list
l|map('nope')|list
l|map|list
l|map('round', 1)|list
none|map('upper')|list
undef|map('upper')|list
l|select|list
[0, 1, '', 'a', none]|select|list
l|select('odd')|list
l|select('>', 1)|list
l|select('gt', 1)|list
l|reject('equalto', 2)|list
l|select('in', [1, 2])|list
l|select('divisibleby', 2)|list
names|reject('in', ['bob'])|list
objs|selectattr('k')|map(attribute='n')|list
objs|selectattr('v', 'equalto', 2)|map(attribute='n')|list
objs|selectattr('v', '==', 2)|list|length
objs|rejectattr('v', 'eq', 2)|map(attribute='n')|list
objs|selectattr('k.q', 'defined')|list
objs|selectattr('k', 'defined')|map(attribute='n')|join(',')
objs|rejectattr('k', 'defined')|map(attribute='n')|join(',')
messages|selectattr('role', 'equalto', 'user')|list|length
messages|selectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|join(' ')
objs|selectattr|list
l|select('nope')|list
messages|rejectattr('content', 'none')|list|length
(l|select('odd')) is sequence
(l|select('odd')) is iterable
(l|select('odd'))|tojson
true if l|select('gt', 100) else false
d|tojson
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='--')
d|tojson(indent=-1)
[]|tojson(indent=2), {}|tojson(indent=2)
[[], {}]|tojson(indent=4)
uni|tojson
uni|tojson(ensure_ascii=True)
messages[2].tool_calls|tojson
messages[2].tool_calls|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':'))
messages[2].tool_calls|tojson(separators=[' , ', ' : '], indent=1)
d|tojson(sort_keys=true)
{1: 1, none: 2, true: 3, 1.5: 4}|tojson
{(1, 2): 3}|tojson
{1: 1, 'a': 2}|tojson(sort_keys=true)
(1, 2)|tojson
[big, small, third, 1.0, -0.0, 5e-324, 2.5e-310]|tojson
html|tojson
undef|tojson
[undef]|tojson
namespace()|tojson
range(3)|tojson
d.items()|tojson
'\x7f\x01\b\f'|tojson
'\x7f'|tojson(ensure_ascii=true)
none|tojson, true|tojson, n|tojson, s|tojson
d|tojson(nope=1)
d|tojson(false, 2)
messages[3].content|from_json
(messages[3].content|from_json).u
messages[3].content|from_json|tojson
'nonsense'|from_json
n|from_json
d|attr('A') is defined
s|attr('upper') is defined
'%s-%s'|format(1, 'a')
'%(x)s'|format(x=2)
'a'|format(1)
s|upper|lower|title
s|upper()
s|replace(old='o', new='x')
s|replace(new='x')
s|trim(chars='h')
s|upper(1)
l|join(d='+')
l|join(sep='+')
"""

TESTS = r"""
n is defined, undef is defined, undef is not defined, undef is undefined
nil is none, n is none, undef is none
t is boolean, n is boolean, t is true, n is true, no is false, z is false
n is integer, t is integer, f is integer, f is float, n is float
n is number, t is number, f is number, s is number
s is string, l is string, undef is string
d is mapping, l is mapping, undef is mapping, namespace() is mapping
s is sequence, l is sequence, d is sequence, n is sequence, undef is sequence, none is sequence, (1,) is sequence, range(2) is sequence
d.items() is sequence, d.items() is iterable, d.items() is mapping
s is iterable, l is iterable, d is iterable, n is iterable, none is iterable, undef is iterable
n is odd, n is even, m is odd, z is even
n is divisibleby 7, n is divisibleby(2)
n is eq 7, n is equalto 7, n is ne 7, n is gt 5, n is lt 5, n is ge 7, n is le 7, n is sameas 7
1 is sameas true, none is sameas none, l is sameas l, [1] is sameas [1]
1 is in l, 9 is in l, 'h' is in s
'abc' is lower, 'ABC' is upper, 'aB' is lower, '1' is upper
range is callable, s is callable, s.upper is callable
'upper' is filter, 'nope' is filter, 'odd' is test
n is not odd
n is not string and s is string
n is defined == true
n is number is defined
s is odd
undef is odd
n is eq
n is eq(1, 2)
messages[2].content is none and messages[2].tool_calls is defined
messages[0] is mapping and messages[0].content is string
not s is mapping
s is string or undef.x
n is divisibleby 0
"""

METHODS = r"""
s.upper(), s.lower(), s.title(), s.capitalize()
uni.upper(), uni.lower(), uni.capitalize(), uni.title()
"they're bill's".title()
'ŉ ß ǰ'.upper(), 'ß'.capitalize(), 'ǆ'.title(), 'ǆ'.upper()
ws.strip() ~ '|', ws.lstrip() ~ '|', ws.rstrip() ~ '|'
s.strip('hd'), s.lstrip('he'), s.rstrip('dl'), s.strip(none)
uni.strip('Send'), '日本日'.strip('日'), '<<a>>'.strip('<>')
'xxx'.strip('x') ~ '|'
s.strip(1)
csv.split(','), csv.split(',', 1), csv.split(',', 0), csv.rsplit(',', 1), csv.rsplit(',')
csv.split(sep=',', maxsplit=2)
ws.split(), s.split(), ''.split(), '  '.split(), ' a  b c '.split(none, 1), ' a  b c '.rsplit(none, 1)
' a b '.split(none, 0), ' a b '.rsplit(none, 0), ' a b c'.split(maxsplit=2)
''.split(','), 'abc'.split('abc'), 'aaa'.split('aa'), 'aaa'.rsplit('aa')
s.split('')
s.split(1)
'a</think>b</think>c'.split('</think>')[-1], 'ab'.split('</think>')[0]
lines.splitlines(), lines.splitlines(true), ''.splitlines(), 'a\n'.splitlines(), '\n'.splitlines()
s.replace('o', '0'), s.replace('o', '0', 1), s.replace('', '.'), s.replace('l', '')
'日本'.replace('', '-')
s.replace('o')
s.startswith('he'), s.startswith('x'), s.startswith(('x', 'he')), s.startswith('ll', 2), s.startswith('ll', 2, 3), s.startswith('')
s.endswith('ld'), s.endswith(('x', 'ld')), s.endswith('l', 0, -1), s.endswith('', 100), s.startswith('', 11)
s.startswith(['he'])
s.endswith(1)
s.find('o'), s.find('o', 5), s.find('zz'), s.rfind('o'), s.index('w'), s.rindex('l'), uni.find('日'), uni.rfind('日')
s.index('zz')
s.find(''), s.rfind(''), s.find('', 100)
s.count('l'), s.count('ll'), s.count(''), s.count('l', 4), 'aaaa'.count('aa')
'-'.join(names), ''.join([]), ', '.join(s)
'-'.join(l)
'-'.join(none)
csv.partition(','), csv.rpartition(','), csv.partition('zz'), csv.rpartition('zz')
csv.partition('')
s.removeprefix('he'), s.removesuffix('ld'), s.removeprefix('x'), s.removesuffix('')
'7'.zfill(3), '-7'.zfill(4), '+7'.zfill(1), 'ab'.ljust(5, '.') , 'ab'.rjust(5), 'ab'.center(5, '*'), 'abc'.center(6, '-')
'a'.ljust(5, 'xy')
digits.isdigit(), digits.isnumeric(), digits.isdecimal(), digits.isalnum(), digits.isalpha(), numeric.isdigit(), numeric.isdecimal(), numeric.isnumeric()
''.isdigit(), 'a b'.isalpha(), 'é'.isalpha(), ' \t'.isspace(), 'AB1'.isupper(), 'ab1'.islower(), '1'.islower(), 'é'.isascii(), ''.isascii()
s.upper(1)
s.upper().lower().replace('h', 'j')[0]
s.split(' ')[0].upper()
d.get('c').get('x')[0]
d.items()|list, d.keys()|list, d.values()|list
shadow.get('x')
[1, 2, 1].count(1), [1, 2].index(2), (1, 2).index(1), (1, 1).count(1)
[1].index(5)
l.sort()
l.copy()
'a'.nope
"abc".find('c', -1), "abc".find('a', -1), 'abc'.count('b', -2, -1)
"%s".upper()
'x'.join('abc')
"ab".upper().__class__
"""

STATEMENTS = [
    "{% if t %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif z %}b{% else %}c{% endif %}",
    "{% if undef %}a{% elif z %}b{% elif t %}d{% else %}c{% endif %}",
    "{% if messages %}m{% endif %}{% if [] %}e{% endif %}{% if not tools %}n{% endif %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in undef %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in none %}{{ x }}{% endfor %}",
    "{% for x in 5 %}{{ x }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for c in uni %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in nested %}{{ a }}-{{ b }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in l %}{{ a }}{% endfor %}",
    "{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }},{% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() if v is mapping %}{{ k }}{{ loop.length }}{% endfor %}",
    "{% for x in l if x > 1 if t else no %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{% if loop.nextitem is defined %}{{ loop.nextitem }}{% endif %}{% if loop.previtem is not defined %}F{% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in l|select('odd') %}{{ loop.length }}{{ loop.revindex }}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in l|map('string') %}{{ loop.last }}{{ loop.nextitem }}{% endfor %}",
    "{% for x in l %}{{ loop.nope }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}|{% endfor %}",
    "{% for x in l %}{% break %}{% else %}e{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}e{% endfor %}",
    "{% for x in l %}{% if loop.last %}{% break %}{% endif %}{% else %}e{% endfor %}",
    "{% for x in l %}{% set q %}a{% if x == 1 %}{% continue %}{% endif %}b{% endset %}{{ q }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}{{ x }}",
    "{% for x in 'ab', 'cd' %}{{ x }};{% endfor %}",
    "{% for x in (1, 2) if x %}{{ x }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ m.role }} {% endfor %}",
    "{% for m in messages[1:] %}{{ loop.index0 }}{{ m.role }} {% endfor %}",
    "{% break %}",
    "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% for x in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}",
    "{% set x = 1 %}{{ x }}",
    "{% set x, y = 1, 2 %}{{ y }}{{ x }}",
    "{% set x, y = (1, 2, 3) %}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{{ x|length }}",
    "{% set x | upper | replace('A', 'z') %}a{{ n }}b{% endset %}{{ x }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if no %}{% set x = 2 %}{% endif %}{{ x is defined }}",
    "{% if no %}{% set s = 2 %}{% endif %}{{ s }}",
    "{% if t %}{% set s = 2 %}{% endif %}{{ s }}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in l %}{{ x is defined }}{% set x = i %}{{ x }}{% endfor %}{{ x is defined }}",
    "{% for i in l %}{{ s }}{% set s = i %}{{ s }}{% endfor %}{{ s }}",
    "{% for i in l %}{{ s }}{% endfor %}{% set s = 'new' %}{{ s }}",
    "{{ s }}{% for i in l %}{{ s }}{% endfor %}{% set s = 'new' %}{{ s }}",
    "{% set s = 'new' %}{% for i in l %}{{ s }}{% endfor %}",
    "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 'new' %}{{ m() }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% macro m() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% macro m() %}{% if s is not defined %}{% set s = 'd' %}{% endif %}{{ s }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% if w is not defined %}{% set w = 'd' %}{% endif %}{{ w }}{% endmacro %}{{ m() }}{{ w }}",
    "{% macro m() %}{% if w is not defined %}{% set w = 'd' %}{% else %}{% set w = 'e' %}{% endif %}{{ w }}{% endmacro %}{{ m() }}",
    "{% if t %}{{ w }}{% set w = 1 %}{% elif n %}{% set w = 2 %}{% else %}{% set w = 3 %}{% endif %}{{ w }}",
    "{% if t %}{{ s }}{% elif n %}{% set s = 2 %}{% else %}{% set s = 3 %}{% endif %}{{ s }}",
    "{% if t %}{% if no %}{% set q = 1 %}{% endif %}{% endif %}{{ q is defined }}{% set q = 3 %}{{ q }}",
    "{% for i in l %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q }}-{% endfor %}",
    "{% set q = 0 %}{% for i in l %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q }}-{% endfor %}{{ q }}",
    "{% for i in l %}{% for k in l %}{% set i = k %}{% endfor %}{{ i }}{% endfor %}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.y = 'a' %}{% macro m() %}{% set ns.y = ns.y ~ 'b' %}{% endmacro %}{{ m() }}{{ ns.y }}{{ m() }}{{ ns.y }}",
    "{% set ns = 5 %}{% set ns.x = 1 %}",
    "{% set d.x = 1 %}",
    "{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{% set ns.a = ns.a + ['x'] %}{{ ns.a }}",
    "{% set ns = namespace(out='') %}{% for i in range(20) %}{% set ns.out = ns.out ~ i ~ ',' %}{% endfor %}{{ ns.out }}{{ ns.out[5:9] }}",
    "{% set a = 'x' %}{% set b = a ~ '1' %}{% set c = b ~ '2' %}{% set e = b ~ '3' %}{{ a }},{{ b }},{{ c }},{{ e }}",
    "{% set ns = namespace(f=none) %}{% macro g(x) %}<{{ x }}>{% endmacro %}{% set ns.f = g %}{{ ns.f(1) }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(a=0) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{% set a = 1 %}{{ m() }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{{ a }}{{ kwargs }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}",
    "{% macro m() %}{{ varargs|length }}{% for v in varargs %}{{ v }}{% endfor %}{% endmacro %}{{ m(*l) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(**{'a': 1, 'b': 2}) }}{{ m(*[1], **{'b': 2}) }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro f(x) %}{% for i in x %}{% if i is iterable and i is not string %}[{{ f(i) }}]{% else %}{{ i }}{% endif %}{% endfor %}{% endmacro %}{{ f(nested) }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m()|trim }}]{{ m() is string }}{{ m()|length }}",
    "{% macro m() %}a{% endmacro %}{{ m.name }}{{ m is callable }}{{ m is defined }}",
    "{{ m() }}{% macro m() %}a{% endmacro %}",
    "{% if no %}{% macro m() %}a{% endmacro %}{% endif %}{{ m is defined }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro outer(x) %}{% macro inner(y) %}{{ x }}{{ y }}{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }}",
    "{% macro m(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call m(1) %}body{{ n }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=5) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% endmacro %}{% call m() %}x{% endcall %}",
    "{% for x in l %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}{% for i in x %}{{ loop.index }}{{ i }}{% endfor %}{% endmacro %}{% for q in l %}{{ m(l) }}{{ loop.index }}{% endfor %}",
    "{% filter upper %}abc{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}abc{{ n }}{% endfilter %}",
    "{% filter trim %}  {% for i in l %}{{ i }} {% endfor %} {% endfilter %}|",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% for i in l %}{% generation %}{{ i }}{% set k = i %}{% endgeneration %}{{ k is defined }}{% endfor %}",
    "{% print 'x', n %}",
    "{{ raise_exception('stop') }}",
    "{% if no %}{{ raise_exception('stop') }}{% endif %}ok",
    "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}",
    "{% set messages = messages[1:] %}{{ messages[0].role }}",
    "{% set tools = tools or [] %}{{ tools|length }}",
    "{% if tools is defined and tools %}T{% endif %}{% if documents %}D{% endif %}{{ documents }}",
    "{% for m in messages %}{% if m.content is string %}{{ m.content|trim }}{% elif m.content is iterable %}{% for p in m.content %}{{ p.type }}{% endfor %}{% else %}-{% endif %}\n{% endfor %}",
    "{{ messages[1] }}",
    "{{ messages }}",
    "{% set x = {'a': [1, 2]} %}{% for k, v in x.items() %}{% for i in v %}{{ k }}{{ i }}{{ loop.last }}{% endfor %}{% endfor %}",
    "{% set g = l|select('odd') %}{{ g|list }}{{ g|list }}",
    "{% set g = l|map('string') %}{{ g|first }}{{ g|list }}",
    "{% set it = d.items() %}{{ it|list }}{{ it|list }}",
    "{% set loop_messages = messages %}{% for message in loop_messages %}{{ message['role'] }}{% endfor %}",
    "{% set a = [1] %}{% set b = a %}{% set a = a + [2] %}{{ a }}{{ b }}",
    "{{ [1, 2][0] }}{{ {'a': 1}['a'] }}{{ (1, 2)[1] }}{{ 'abc'[1] }}",
    "{{ '{{' }}{{ '}}' }}{{ '{%' }}{{ '%}' }}{{ \"#}\" }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "a\r\nb\rc\n",
    "{% set x = 'a\r\nb' %}{{ x }}",
    "{{ ('a' if t) ~ ('b' if no) }}",
    "{% if 'a' 'b' == 'ab' %}y{% endif %}",
    "{% set _ = n %}{{ _ }}",
    "{% set __x = n %}{{ __x }}",
    "{%- for m in messages -%}{%- if loop.first -%}F{%- endif -%}{{- m['role'] -}}{%- if not loop.last -%},{%- endif -%}{%- endfor -%}",
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content if m.content is string else '?') + '<|im_end|>' }}{% endfor %}",
    # mistakes
    "{% if %}x{% endif %}", "{% if t %}x", "{% endif %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ 'a }}",
    "{% for in l %}{% endfor %}", "{% for x l %}{% endfor %}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% unknown %}",
    "{{ a b }}", "{{ a. }}", "{{ a..b }}", "{{ a | }}", "{{ a is }}", "{{ a|nope }}", "{{ a is nope }}", "{% raw %}x",
    "{# x", "{% set x %}", "{% macro m( %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}",
    "{{ n is odd is even }}", "{{ $ }}", "{{ a ! b }}", "{{ {'a' 1} }}", "{% include 'x' %}", "{% extends 'x' %}",
    "{{ a if }}", "{{ not }}", "{{ - }}", "{% for x in l recursive %}{{ loop(l) }}{% endfor %}" "{{", "{% if t %}{% else %}{% else %}{% endif %}",
    "{% elif %}", "{% call n %}{% endcall %}", "{% filter nope %}{% endfilter %}", "{% with a %}{% endwith %}",
    "{{ '\\xZZ' }}", "{{ 1.2.3 }}", "{{ 012 }}", "{% %}", "{%", "{{ 'a' 1 }}", "{{ l[ }}", "{{ l[] }}",
]


def jobs():
    sources = [("whitespace %d" % i, t) for i, t in enumerate(WHITESPACE[1:].split("\n---\n"))]
    for name, group in (("expression", EXPRESSIONS), ("filter", FILTERS), ("test", TESTS), ("method", METHODS)):
        text = group.strip("\n").replace("\\\nb'", "\\\x00b'").replace('"new\nline"', '"new\x00line"')
        for line in text.split("\n"):
            line = line.replace("\x00", "\n")
            # Several results on one line fail and succeed one by one.
            sources.append(("%s: %s" % (name, line), "[{{ " + line + " }}]"))
    sources += [("statement: " + t, t) for t in STATEMENTS]
    return [{"name": n, "source": t, "messages": MESSAGES, "tools": TOOLS, "extra": EXTRA, "add_generation_prompt": True,
             "bos_token": "<s>", "eos_token": "</s>"} for n, t in sources]
