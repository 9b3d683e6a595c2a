# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""tree.py - what the checks have in common: the files, and how they report"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOT_OURS = ('.git', 'LICENSES')


def files(*suffixes, under=''):
    """Paths, relative to the root, of the files that belong to the project."""
    try:
        out = subprocess.run(
            ['git', '-C', ROOT, 'ls-files', '-z', '--cached', '--others',
             '--exclude-standard'],
            check=True, capture_output=True, text=True).stdout
        paths = [p for p in out.split('\0') if p]
    except (OSError, subprocess.CalledProcessError):
        paths = []  # a release without its history
        for folder, dirs, names in os.walk(ROOT):
            dirs[:] = [d for d in dirs if not d.startswith('build')
                       and d not in ('.git', '.deps')]
            paths += [os.path.relpath(os.path.join(folder, n), ROOT)
                      for n in names]
    return sorted(p for p in paths
                  if p.startswith(under) and p.split('/')[0] not in NOT_OURS
                  and (not suffixes or p.endswith(suffixes))
                  and os.path.isfile(os.path.join(ROOT, p)))


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8',
              errors='replace') as f:
        return f.read()


class Report:
    """Collects what is wrong and what is nearly so."""

    def __init__(self):
        self.errors = 0
        self.warnings = 0

    def error(self, where, what):
        self.errors += 1
        print(f'{where}: {what}')

    def warn(self, where, what):
        self.warnings += 1
        print(f'{where}: warning: {what}')

    def finish(self, done):
        print(f'{done}: {self.errors} errors, {self.warnings} warnings')
        sys.exit(1 if self.errors else 0)


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)
