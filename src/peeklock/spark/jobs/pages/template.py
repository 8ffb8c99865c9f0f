"""The page that every report is written on, light and dark; it loads nothing."""

from typing import Final

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --ground: #fcfcfb; --card: #ffffff; --ink: #1b1f24;
  --quiet: #59636e; --faint: #c9d0d8; --bad: #b3261e; --series-0: #0068b3; --series-1: #b45700;
  --series-2: #00795c; --series-3: #9c3b80; --series-4: #5b5fc7; --series-5: #7a5c00;
  --series-6: #4d4d4d; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1c2126; --ink: #e6e9ec;
  --quiet: #a3adb8; --faint: #46505a; --bad: #ff8a80; --series-0: #5bb0f0; --series-1: #f0a04b;
  --series-2: #4fd1ad; --series-3: #e38fc8; --series-4: #a5a8ff; --series-5: #e0c45c;
  --series-6: #c4c4c4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
a { color: var(--series-0); }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: .5rem;
  border-top: 1px solid var(--faint); }
p { margin: .25rem 0 1rem; max-width: 44rem; }
.quiet, figcaption, caption span { color: var(--quiet); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none;
  margin: 1rem 0 0; padding: 0; }
.figures { display: grid; gap: .75rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
.figures div { background: var(--card); border: 1px solid var(--faint); border-radius: .5rem;
  padding: .6rem .8rem; }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; font-size: 1.45rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.bad dd { color: var(--bad); font-weight: 600; }
.bad dd::before { content: "\\26A0\\FE0E\\00A0"; }
figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { font-size: .9rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible, a:focus-visible { outline: 2px solid var(--series-0); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
caption { text-align: left; font-weight: 600; padding: .25rem 0 .4rem; }
caption span { display: block; font-weight: 400; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; white-space: pre-line; overflow-wrap: anywhere; }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
@media print { body { max-width: none; } .scroll { overflow: visible; } }
</style>
</head>
<body>
<header>
<h1>{{ title }}</h1>
<p class="quiet">{{ text }}</p>
<nav aria-label="Sections"><ul>
{% for section in sections %}
<li><a href="#section-{{ loop.index }}">{{ section.title }}</a></li>
{% endfor %}
</ul></nav>
</header>
<main>
{% for section in sections %}
<section aria-labelledby="section-{{ loop.index }}">
<h2 id="section-{{ loop.index }}">{{ section.title }}</h2>
{% if section.text %}<p>{{ section.text }}</p>{% endif %}
{% if section.figures %}
<dl class="figures">
{% for name, value, is_bad in section.figures %}
<div{% if is_bad %} class="bad"{% endif %}><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
{% endfor %}
</dl>
{% endif %}
{% for says, drawn in section.plots %}
<figure role="img" aria-label="{{ says }}">
{{ drawn|safe }}
<figcaption>{{ says }}</figcaption>
</figure>
{% endfor %}
{% for table in section.tables %}
<div class="scroll" tabindex="0" role="region" aria-label="{{ table.title }}">
<table>
<caption>{{ table.title }}{% if table.text %}<span>{{ table.text }}</span>{% endif %}</caption>
{% if table.rows %}
<thead>
<tr>
{% for head, is_number in table.heads %}
<th scope="col"{% if is_number %} class="number"{% endif %}>{{ head }}</th>
{% endfor %}
</tr>
</thead>
<tbody>
{% for row in table.rows %}
<tr>
{% for cell, is_number in row %}
<td{% if is_number %} class="number"{% endif %}>{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
{% else %}
<tbody><tr><td>None.</td></tr></tbody>
{% endif %}
</table>
</div>
{% endfor %}
</section>
{% endfor %}
</main>
</body>
</html>
"""
