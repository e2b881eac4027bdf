"""Words of the demo shop: customers, cities, goods and remarks in several languages and scripts."""

from __future__ import annotations

from typing import Final

PEOPLE: Final[dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]]] = {
    # language: country, order of names, given names, family names
    "de": ("DE", "given family", ("Jürgen", "Käthe", "Björn", "Annegret", "Günther", "Zoë"),
           ("Müller", "Weiß", "Schäfer", "Grünewald", "von Bülow", "Großmann")),
    "zh": ("CN", "familygiven", ("伟", "秀英", "芳", "子涵", "建国", "雨桐"),
           ("王", "李", "张", "刘", "陈", "欧阳")),
    "ja": ("JP", "family given", ("翔太", "さくら", "健一", "美咲", "ひなた", "陽菜"),
           ("佐藤", "鈴木", "髙橋", "田中", "渡邊", "小林")),
    "ar": ("EG", "given family", ("محمد", "فاطمة", "يوسف", "ليلى", "عمر", "نور"),
           ("حسن", "المصري", "عبد الله", "السيد", "خليل", "الحداد")),
    "en": ("GB", "given family", ("Olivia", "Noah", "Siân", "Rory", "Chloë", "D'Arcy"),
           ("Smith", "O'Brien", "Jones", "Fitz-Hugh", "Patel", "Brontë")),
    "pt": ("BR", "given family", ("João", "Conceição", "Inês", "Antônio", "Luísa", "Caetano"),
           ("Gonçalves", "Araújo", "Simões", "da Conceição", "Magalhães", "Falcão")),
    "hi": ("IN", "given family", ("आरव", "दीया", "विवान", "अनन्या", "कबीर", "मीरा"),
           ("शर्मा", "सिंह", "गुप्ता", "अय्यर", "पटेल", "चौधरी")),
    "ru": ("KZ", "given family", ("Алёна", "Дмитрий", "Мария", "Пётр", "Юлия", "Тимур"),
           ("Щукина", "Ёлкин", "Ким", "Ахметова", "Соловьёв", "Цой")),
}  # fmt: skip

CITIES: Final[dict[str, tuple[str, ...]]] = {
    "de": ("Köln", "Lübeck", "Saarbrücken", "Görlitz"),
    "zh": ("上海", "成都", "西安", "哈尔滨"),
    "ja": ("東京", "大阪", "札幌", "那覇"),
    "ar": ("القاهرة", "الإسكندرية", "أسوان", "طنطا"),
    "en": ("London", "St Andrews", "Aberystwyth", "Stoke-on-Trent"),
    "pt": ("São Paulo", "Brasília", "Goiânia", "Maceió"),
    "hi": ("मुंबई", "दिल्ली", "चेन्नई", "जयपुर"),
    "ru": ("Алматы", "Астана", "Шымкент", "Актау"),
}

GOODS: Final[tuple[tuple[str, str, str], ...]] = (
    # category, title, description
    ("tea", "龙井茶", "明前绿茶,清香回甘。"),
    ("tea", "Ostfriesentee", "Kräftige Mischung; mit Kluntje und Sahne."),
    ("tea", "شاي بالنعناع", "أوراق نعناع مجففة مع شاي أخضر."),
    ("tea", "抹茶", "石臼で挽いた宇治の抹茶。"),
    ("books", "Die Verwandlung", "„Als Gregor Samsa eines Morgens …“, gebunden"),
    ("books", "红楼梦", "曹雪芹 著,三卷本"),
    ("books", "ألف ليلة وليلة", "طبعة مصورة"),
    ("books", "Dom Casmurro", "Edição de bolso, com posfácio"),
    ("kitchen", "南部鉄器 急須", "容量 0.6 L、茶こし付き"),
    ("kitchen", "Espressokanne", "Für 3 Tassen, auch für Induktion"),
    ("kitchen", "Чайник «Заря»", "Эмаль, 2 литра"),
    ("kitchen", "मसाला डिब्बा", "सात कटोरियाँ, स्टील"),
    ("garden", "Secateurs No. 9", 'Blade 8", for left & right hands'),
    ("garden", "Gießkanne", "Verzinkt, 9 Liter, Brause aus Messing"),
    ("garden", "Sementes de girassol 🌻", "Pacote com 50 sementes"),
    ("toys", "Kite 🪁", "Ripstop nylon; needs 3 Beaufort"),
    ("toys", "けん玉", "競技用、欅"),
    ("toys", "Spieluhr 🎶", "Spielt »Weißt du, wie viel Sternlein stehen«"),
)

REMARKS: Final[tuple[str, ...]] = (
    "Please ring twice 🔔🔔",
    "Bitte beim Nachbarn abgeben (Tür links).",
    "请放在门口,谢谢!",
    "不在時は宅配ボックスへ 📦",
    "اتركه عند البواب من فضلك",
    "É presente! 🎁 Sem nota na caixa.",
    "घंटी मत बजाइए, बच्चा सो रहा है 👶",
    "Позвоните за час до доставки",
    "it's \"fragile\"; 100% \\ careful_please",
    "two\nlines",
)
