"""A sample of the kinds of text a memory holds, from word lists: chat, notes, decisions, commands, errors, diaries.

The token projection is fitted on it and runtimes are compared on it, so it must be the same for ever and on every
machine: it takes no randomness, only counting. Its use is breadth, not sense: each pattern meets each word of its
lists in turn.
"""

from __future__ import annotations

from math import gcd

PATTERNS = """
{name}: I went to the {place} with my {relative} {when}, and we talked about {topic} for hours.
{name}: Did you ever finish the {thing} you told me about? I would love to see how the {adjective} part came out.
{name}: That sounds {feeling}! My {relative} had the same trouble with {topic} last year.
{name}: Thanks, I really needed that. {topic} has been on my mind since we moved from {city}.
{name}: We adopted a {adjective} {animal} and called it {name2}; the children are {feeling} about it.
{name}: I signed up for a class in {hobby} because {name2} said it helps with {topic}.
{name}: Remind me to bring the {thing} to {city} on {date}, it belongs to {name2}.
How was the trip to {city}? I heard the {place} there is {adjective}.
We decided to move {service} from {tool} to {tool2} since {reason}; {name} will write the migration.
Decision of {date}: {service} keeps {number} days of logs, because {reason}.
TODO: rename `{identifier}` to `{identifier2}` before the release, see {path}.
The {service} returned {number} errors after the deploy, and {tool} showed that {reason}.
$ {tool} {verb} --{option} {path} && echo done
def {identifier}({identifier2}: int = {number}) -> bool: return {identifier2} > {number}
{error}: {identifier} in {path}, line {number}: expected a {adjective} {thing}
If {reason}, restart {service} with `{tool} {verb} {service}` and wait {number} seconds.
## {topic} and {hobby}: what to {verb} first
- [ ] {verb} the {adjective} {thing} ({name}, {date})
- {service} listens on port {number}; its password lies in {path}.
| {service} | {number} ms | {adjective} | {date} |
Never {verb} the {thing} of {service} by hand: {reason}.
{date}. Slept badly, felt {feeling}. Wrote two pages on {topic}, then walked to the {place} in {city}.
{date}. {name} called about the {thing}; it costs {number} euros more than we thought, so I am {feeling}.
Meeting with {name} and {name2} on {date}: budget for {topic} is {number}, {name} will {verb} the {thing}.
Recipe from my {relative}: {number} grams of {food}, some {food2}, and let it rest until it is {adjective}.
The doctor told {name} to avoid {food} and to try {hobby} {number} times a week.
Who said that {reason}, {name} or {name2}? And when did they {verb} the {thing}?
What does {service} do when the {thing} in {path} is {adjective}?
Why did we choose {tool} over {tool2} for {topic}?
{name} grew up in {city}, studied {topic}, and now works at a {place} where they {verb} {thing}s.
Please {verb} the test of {identifier}; it fails with {error} when {option} is {number}.
I read that {topic} changes how people think about {hobby}, which left me {feeling}.
Commit {number}: {verb} {identifier} so that {service} no longer needs {tool}
The key idea is {adjective}: compare {identifier} with the {thing} of {date}, and {verb} whatever differs.
{name2} plays {hobby} in {city} every week; last time {name} won by {number} points.
Our {animal} ate the {food} that was meant for {name}'s birthday on {date}.
Visa, passport and the {adjective} {thing} are in the drawer; the flight to {city} leaves at {number}.
""".strip().splitlines()

WORDS = {
    "name": "Anna Bruno Chidi Dalia Emre Farah Goran Hana Ivan Jelena Kofi Leila Marek Nadia Omar Priya Quentin Rosa "
    "Stefan Tomoko Uwe Vera Wei Ximena Yusuf Zoe",
    "place": "library|beach|old museum|hospital|small bakery|climbing hall|city council|car repair shop|harbour|"
    "mountain hut|school|support group|farm|theatre|railway station|art gallery",
    "relative": "mother|father|sister|brother|grandmother|uncle|daughter|son|cousin|husband|wife|neighbour|best friend",
    "when": "yesterday|last Friday|two weeks ago|on Christmas day|this morning|in the summer of 2019|after work|"
    "a month before the wedding|on my birthday",
    "topic": "mental health|adoption|database indexes|climate policy|machine learning|grief|password rotation|"
    "jazz history|garden soil|taxes|memory allocation|the election|cancer research|type inference|immigration law|"
    "cache invalidation|poetry|battery chemistry|renting a flat|time zones|child care|code review",
    "thing": "painting|guitar|configuration file|bicycle|contract|tent|index|letter|backup|necklace|report|schema|"
    "telescope|recipe book|certificate|query|camera|invoice|schedule|token|puzzle|roof",
    "adjective": "blue|broken|stale|careful|enormous|quiet|wrong|second|golden|empty|recursive|cheap|wooden|sharp|"
    "temporary|honest|frozen|green|ancient|unsigned|spicy|lonely|parallel|soft|illegal|fragile",
    "feeling": "proud|nervous|exhausted|grateful|furious|curious|relieved|jealous|hopeful|ashamed|thrilled|bored",
    "animal": "kitten|dog|parrot|tortoise|horse|rabbit|goldfish|hamster",
    "hobby": "pottery|chess|running|violin|photography|woodwork|yoga|football|knitting|sailing|video games|baking",
    "city": "Lisbon|Osaka|Chicago|Nairobi|Prague|Lima|Mumbai|Toronto|Oslo|Cairo|Hanoi|Auckland|Paris",
    "date": "2 May 2023|2024-11-30|the 14th of July|Tuesday|12/08/2021|next Sunday at 9 am|early March|31 December",
    "service": "billing-api|the scheduler|nginx|user_service|the search index|mail-gateway|auth|the nightly job|"
    "payment worker|frontend",
    "tool": "git|docker|postgres|kubectl|cargo|redis|npm|pytest|kafka|sqlite3|terraform|make|grep|systemctl|curl",
    "reason": "it was never closed|the disk was full|two writers held the same lock|nobody owned it|"
    "the clock went back|its licence forbids it|users asked for it twice|the certificate had expired|"
    "it costs too much|it leaks memory|the old one cannot be rolled back|half of the rows were missing",
    "number": "3|17|404|8080|0.25|1,200|64|2|99.9|500|12|1024|30|7",
    "identifier": "parse_header|userId|retryCount|MAX_SIZE|open_socket|TokenStream|is_valid|renderPage|hash_password|"
    "index_name|flushBuffer|on_message|tmp_dir|json_body",
    "path": "src/app/main.rs|/etc/hosts|docs/deploy.md|tests/test_wire.py|~/notes/2022/ideas.txt|config/prod.yaml|"
    "C:\\Users\\me\\file.csv|web/components/Button.tsx|Makefile",
    "verb": "delete|deploy|paint|review|install|measure|translate|repair|merge|cancel|build|remember|rewrite|sell|"
    "compress|invite|migrate|teach",
    "option": "force|verbose|dry-run|timeout|recursive|user|no-cache|branch|max-depth",
    "error": "KeyError|Segmentation fault|PermissionError|TypeError|connection refused|timeout|NullPointerException|"
    "panic|HTTP 503|undefined reference",
    "food": "flour|rice|olive oil|tomatoes|dark chocolate|lentils|cheese|strawberries|garlic|salmon|oats|ginger",
}
ROUNDS = 14  # times each pattern is used: 518 texts, about 10,000 tokens


def sample_texts(rounds: int = ROUNDS) -> list[str]:
    """`rounds` texts from each pattern; the same on every machine, for ever."""
    lists = {kind: words.split("|") if "|" in words else words.split() for kind, words in WORDS.items()}
    return [
        _filled(pattern, lists, turn * len(PATTERNS) + position)
        for turn in range(rounds)
        for position, pattern in enumerate(PATTERNS)
    ]


def _filled(pattern: str, lists: dict[str, list[str]], number: int) -> str:
    """The pattern with words chosen by counting: each list is walked by a step of its own that visits all of it."""
    values = {}
    for place, (kind, words) in enumerate(lists.items()):
        step = next(step for step in range(place + 3, place + 3 + len(words)) if gcd(step, len(words)) == 1)
        values[kind] = words[number * step % len(words)]
        values[kind + "2"] = words[(number * step + 1) % len(words)]
    return pattern.format_map(values)
