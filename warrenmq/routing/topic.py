"""Topic exchanges: a trie of the binding keys' words (rabbit_exchange_type_topic).

    key           words           a binding key's `*` stands for one word, its `#` for any number, none too
    ""            none
    "a.b"         a, b            kern.*  ->  kern.disk      not kern, kern.disk.full
    "a."          a, ""           kern.#  ->  kern, kern.disk, kern.disk.full
    "."           "", ""          *.*     ->  kern.disk, "."

Each word of a binding key is an edge, `*` and `#` too; bindings hang at the node where their keys end.  A walk over all
ways that fit a routing key visits a node at most once for each number of words left: below each `#` it is
remembered from where on the rest has been tried.  RabbitMQ tries all of it again for every way to reach the `#`, which with
several of them in a key grows with a power of the number of words.

One thread changes a trie while others walk it without a lock.  A walk looks children up one at a time and reads tuples
that never change; new branches are complete before they are linked in.
"""

from __future__ import annotations

from warrenmq.routing.declared import Destination

ONE, MANY = "*", "#"


def split(key: str) -> list[str]:
    """The words of a key; the empty key has none."""
    return key.split(".") if key else []


class Node:
    """A node of the trie: the destinations bound here, and the edges by word."""

    __slots__ = ("children", "destinations")

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.destinations: tuple[Destination, ...] = ()
        """One for each binding, so one that is bound twice (with other arguments) is here twice."""


class TopicTrie:
    """The bindings of one topic exchange."""

    def __init__(self) -> None:
        self.root = Node()

    def add(self, key: str, destination: Destination) -> None:
        """Add a binding; the caller knows that it is a new one."""
        node, words = self.root, split(key)
        while words and words[0] in node.children:
            node = node.children[words.pop(0)]
        if not words:
            node.destinations = (*node.destinations, destination)
            return
        branch = Node()
        branch.destinations = (destination,)
        for word in reversed(words[1:]):
            parent = Node()
            parent.children[word] = branch
            branch = parent
        node.children[words[0]] = branch

    def remove(self, key: str, destination: Destination) -> None:
        """Remove a binding that is there, and the branch that nothing else needs (leaked until 76dcd92523)."""
        words = split(key)
        path = [self.root]
        for word in words:
            path.append(path[-1].children[word])
        left = list(path[-1].destinations)
        left.remove(destination)
        path[-1].destinations = tuple(left)
        for word in reversed(words):
            node = path.pop()
            if node.children or node.destinations:
                break
            del path[-1].children[word]

    def match(self, key: str) -> dict[Destination, None]:
        """The destinations of a message with this routing key, each once."""
        words = split(key)
        end = len(words)
        found: dict[Destination, None] = {}
        tried: dict[Node, int] = {}
        """Node behind a `#` -> from which word on it has been tried with all that is left."""
        work = [(self.root, 0)]
        while work:
            node, at = work.pop()
            children = node.children
            if at == end:
                found.update(dict.fromkeys(node.destinations))
            elif children:
                word = words[at]
                # A message may have `*` and `#` for words: they lead where the binding's do, which is done below.
                if word not in (ONE, MANY) and (child := children.get(word)) is not None:
                    work.append((child, at + 1))
                if (child := children.get(ONE)) is not None:
                    work.append((child, at + 1))
            if (child := children.get(MANY)) is not None:
                before = tried.get(child, end + 1)
                if at < before:
                    tried[child] = at
                    work.extend((child, rest) for rest in range(at, before))
        return found
