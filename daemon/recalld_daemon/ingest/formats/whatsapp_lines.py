"""How the lines of a WhatsApp export (`_chat.txt`, "WhatsApp Chat with Ana.txt") begin, in the languages of phones.

    15.04.2016, 15:04 - Ana: text                Android
    [8/15/23, 9:12:33 AM] Ana: text              iOS, where U+200E may stand before the bracket and U+202F before AM
    2016/04/15 3:04 p. m. - Ana joined           no sender: WhatsApp itself speaks

Which number is the day is not decided here: `whatsapp_dates` sees the whole file. What a file's lines have in common
beside the numbers is its layout; a line inside a message that has another one is no beginning. Not known are layouts
that spell the date with words (Korean on Android, some Arabic ones).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARKS = "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"  # direction marks, which nobody sees
HEADER = 400  # characters at a line's beginning within which date and sender stand
MOST_NAME = 100  # characters of a sender; WhatsApp's own have 25, a phone's contacts may have more
LONG_NAME = 40  # longer ones, and those with quotes, are senders only if they come twice

_M = f"[{MARKS}]*"
_STAMP = rf"""
    (?P<a>\d{{1,4}}){_M}(?P<sep>[./-])\s?{_M}(?P<b>\d{{1,2}}){_M}(?P=sep)\s?{_M}(?P<c>\d{{1,4}})
    (?P<between>\.?(?:\s?г\.)?[,،]?\s(?:(?:klo|at|às|um|kl\.?)\s)?){_M}
    (?P<before>(?:上午|下午|오전|오후|午前|午後)\s?)?
    (?P<hour>\d{{1,2}})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?
    (?P<after>\s?(?:[ap]\.?\s?m\.?|[πμ]\.?\s?μ\.?|[صم]))?
"""
_FLAGS = re.VERBOSE | re.IGNORECASE
_BRACKETED = re.compile(rf"{_M}\[{_M}{_STAMP}{_M}\]{_M}\s?", _FLAGS)
_DASHED = re.compile(rf"{_M}{_STAMP}{_M}\s[-–]\s", _FLAGS)
_SENDER = re.compile(rf"{_M}(?:~\s?)?(?P<name>[^:\n]{{1,{MOST_NAME}}}):(?:\s|\Z)")
_LOG_LEVEL = re.compile(r"(?:\w+\.)?(?:trace|debug|info|notice|warn|warning|error|fatal|critical|alert)", re.IGNORECASE)
_SECOND_HALF = ("p", "下", "오후", "午後", "μ", "م")

_PLACEHOLDER = re.compile(
    r"<[^<>\n]{1,40}>"  # <Media omitted>, <Medien ausgeschlossen>, <attached: 0001-PHOTO.jpg>, in any language
    r"|[^\s<>/\\]{1,80}\.\w{1,5} \([^()\n]{1,40}\)"  # IMG-20190101-WA0000.jpg (file attached)
    r"|(?:image|photo|video|audio|gif|sticker|document|contact card|video note|voice message) omitted"
    r"|(?:bild|video|audio|gif|sticker|dokument|kontaktkarte) weggelassen"
    r"|(?:imagen|vídeo|video|audio|gif|sticker|documento|tarjeta de contacto) omitid[oa]"
    r"|(?:image|vidéo|audio|gif|sticker|document|fiche contact) (?:absente?|omise?)"
    r"|(?:imagem|vídeo|áudio|gif|figurinha|documento|cartão do contato) (?:ocultad[oa]|omitid[oa])"
    r"|(?:immagine|video|audio|gif|sticker|documento) omess[oa]"
    r"|(?:afbeelding|video|audio|gif|sticker|document) weggelaten"
    r"|(?:this message was|you) deleted(?: this message)?"
    r"|diese nachricht wurde gelöscht|du hast diese nachricht gelöscht"
    r"|se eliminó este mensaje|este mensaje fue eliminado|eliminaste este mensaje|ce message a été supprimé"
    r"|vous avez supprimé ce message|(?:esta mensagem|essa mensagem) foi (?:apagada|eliminada)|mensagem apagada"
    r"|questo messaggio è stato eliminato|hai eliminato questo messaggio|dit bericht is verwijderd|null"
    r"|waiting for this message(?:\. this may take a while)?|(?:live )?location shared|missed (?:voice|video) call",
    re.IGNORECASE,
)
_INVISIBLE = re.compile(f"[{MARKS}]+")
_LOOSE = re.compile(rf"{_M}\[?{_M}\d{{1,4}}\D{{1,3}}\d{{1,2}}\D{{1,3}}\d{{1,4}}\D.{{0,30}}[^:]: ")

Layout = tuple[bool, str, str, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class Header:
    """a, b, c: the date's numbers as they stand. half: 0 before noon, 1 after, None: 24 hours. sender: "" where
    WhatsApp speaks. body: the character at which what was said begins."""

    layout: Layout
    a: int
    b: int
    c: int
    hour: int
    minute: int
    second: int
    half: int | None
    upper: bool  # "PM", not "pm"
    padded: bool  # "01/06", not "1/6"
    sender: str
    body: int


def read_header(line: str) -> Header | None:
    """What a line's beginning tells; None: it begins no message."""
    text = line[:HEADER]
    bracketed = _BRACKETED.match(text)
    match = bracketed or _DASHED.match(text)
    if not match:
        return None
    half = _half(match["before"] or match["after"] or "")
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if hour > (12 if half is not None else 24) or minute > 59 or second > 60:
        return None
    sender = _SENDER.match(text, match.end())
    wide = max(len(match["a"]), len(match["c"])) == 4
    between = " ".join(match["between"].split())
    layout = (bracketed is not None, match["sep"], between, wide, half is not None, bool(match["second"]))
    return Header(
        layout, int(match["a"]), int(match["b"]), int(match["c"]), hour, minute, second, half,
        upper=(match["after"] or "").strip().isupper(),
        padded=match["a"].startswith("0") or match["b"].startswith("0"),
        sender=visible(sender["name"]) if sender else "",
        body=sender.end() if sender else match.end(),
    )  # fmt: skip


def visible(text: str) -> str:
    """Without direction marks, its spaces plain."""
    return " ".join(_INVISIBLE.sub("", text).split())


def is_placeholder(body: str) -> bool:
    """Whether what was said is WhatsApp's own word for what is not in the export; on iOS a mark stands before it."""
    return body.startswith("\u200e") or bool(_PLACEHOLDER.fullmatch(visible(body).rstrip(".")))


def is_doubtful(sender: str) -> bool:
    """Whether it may be WhatsApp's own sentence with a colon in it ("Ana changed the subject to "x: y""): a sender all
    the same, if it comes twice."""
    return len(sender) > LONG_NAME or any(quote in sender for quote in '"“”„«»')


def looks_logged(senders: list[str]) -> bool:
    """Whether most senders are the levels of a program's log."""
    return sum(bool(_LOG_LEVEL.fullmatch(name)) for name in senders) * 2 > len(senders)


def looks_like_chat(line: str) -> bool:
    """Whether a line has a date and a name in front, perhaps in a layout that is not known."""
    return bool(_LOOSE.match(line[:HEADER]))


def _half(said: str) -> int | None:
    said = said.strip().lower()
    if not said:
        return None
    return int(said.startswith(_SECOND_HALF))
