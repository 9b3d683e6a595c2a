# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""kdoc.py - reads the kernel-doc comments of a header"""

import re

import tree

# A comment, or something at the outermost level up to its end.
PIECE = re.compile(
    r'/\*\*(?P<doc>.*?)\*/|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$'
    r'|extern "C" \{|^\}[ \t]*$'
    r'|(?P<decl>[A-Za-z_][^;{}/]*(?:\{(?:[^{}]|\{[^{}]*\})*\}[^;]*)?;)',
    re.S | re.M)
SECTION = re.compile(r'^(Context|Return|Note):\s*(.*)$')
PARAM = re.compile(r'^@(\w+):\s*(.*)$')


class Doc:
    """One documented (or undocumented) function, struct or enum."""

    def __init__(self, kind, name, decl):
        self.kind = kind
        self.name = name
        self.decl = decl
        self.members = []   # what has to be described, in order
        self.documented = False
        self.title = ''
        self.brief = ''
        self.params = {}    # name -> lines
        self.text = []      # paragraphs, as lists of lines
        self.sections = {}  # Context, Return -> lines


def strip_comments(text):
    return re.sub(r'/\*.*?\*/', '', text, flags=re.S)


def squeeze(text):
    return re.sub(r'\s+', ' ', text).strip()


def split_commas(text):
    """At commas that are in no parentheses."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == '(') - (c == ')')
        if c == ',' and not depth:
            parts.append(text[last:i])
            last = i + 1
    return [p.strip() for p in parts + [text[last:]] if p.strip()]


def declared_name(text):
    """Of a parameter or member: "int (*f)(void)", "char name[32]", "int x"."""
    pointer = re.search(r'\(\s*\*\s*(\w+)\s*\)', text)
    if pointer:
        return pointer.group(1)
    found = re.search(r'(\w+)\s*(\[[^\]]*\]\s*)*$', text)
    return found.group(1) if found else text


def parse_decl(decl):
    """A Doc without its comment, or None for what needs no documentation."""
    decl = squeeze(strip_comments(decl))
    body = re.match(r'(struct|enum|union) (\w+) ?\{(.*)\}', decl)
    if body:
        doc = Doc(body.group(1), body.group(2), decl)
        if doc.kind == 'enum':
            doc.members = [re.match(r'\w+', p).group()
                           for p in split_commas(body.group(3))]
        else:
            doc.members = [declared_name(m) for m in body.group(3).split(';')
                           if m.strip()]
        return doc
    decl = re.sub(r'__attribute__ ?\(\(.*?\)\)(?=[ ;])', '', decl)
    function = re.match(r'([^()]*?)(\w+) ?\((.*)\) ?;$', decl)
    if function and not decl.startswith('typedef'):
        doc = Doc('function', function.group(2), squeeze(decl))
        doc.returns = function.group(1).strip()
        arguments = split_commas(function.group(3))
        doc.members = [declared_name(a) for a in arguments
                       if a not in ('void', '...')]
        return doc
    return None


def parse_comment(doc, comment):
    """Fill in what the comment says."""
    lines = [re.sub(r'^\s*\* ?', '', line).rstrip()
             for line in comment.strip('\n').split('\n')]
    while lines and not lines[0]:
        lines.pop(0)
    doc.documented = True
    doc.title, _, doc.brief = lines.pop(0).partition(' - ') if lines else \
        ('', '', '')
    into = None
    for line in lines:
        param, section = PARAM.match(line), SECTION.match(line)
        if param:
            into = doc.params.setdefault(param.group(1), [])
            into.append(param.group(2))
        elif section:
            into = doc.sections.setdefault(section.group(1), [])
            into.append(section.group(2))
        elif not line:
            into = None
        elif into is None:
            into = [line]
            doc.text.append(into)
        else:
            into.append(line)


def parse(path):
    """The Docs of a header, in its order."""
    docs, comment = [], None
    for piece in PIECE.finditer(tree.read(path)):
        if piece.group('doc') is not None:
            comment = piece.group('doc')
        elif piece.group('decl'):
            doc = parse_decl(piece.group('decl'))
            if doc:
                if comment is not None:
                    parse_comment(doc, comment)
                docs.append(doc)
            comment = None
        elif not piece.group().strip().startswith('#'):
            comment = None
    return docs


def problems(doc):
    """What is missing or wrong, as sentences."""
    if not doc.documented:
        if doc.kind != 'function' and not doc.members:
            return
        yield f'{doc.kind} {doc.name} is not documented'
        return
    title = doc.name + '()' if doc.kind == 'function' else \
        f'{doc.kind} {doc.name}'
    if doc.title != title:
        yield f'the comment of {title} is titled "{doc.title}"'
    if not doc.brief:
        yield f'{title} has no short description'
    for member in doc.members:
        if member.startswith('GM_NR_'):
            continue  # counts the others
        if not ' '.join(doc.params.get(member, [])).strip():
            yield f'{title}: {member} is not described'
    for name in doc.params:
        if name not in doc.members:
            yield f'{title}: there is no {name} to describe'
    if doc.kind != 'function':
        return
    told = ' '.join(doc.sections.get('Return', [])).strip()
    if doc.returns == 'void' and told:
        yield f'{title} returns nothing, but has a Return:'
    if doc.returns != 'void' and not told:
        yield f'{title} has no Return:'
    if 'Context' in doc.sections and \
            not ' '.join(doc.sections['Context']).strip():
        yield f'{title} has an empty Context:'
