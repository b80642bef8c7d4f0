//! A radix tree of paths: MIQS+'s names. A node's label is what all below it share.
//!
//! A node takes 24 bytes and its label's bytes; siblings are a list, in the order in which they
//! came. A path is found again from its number by climbing.

const NONE: u32 = u32::MAX;

struct Node {
    label_at: u32,
    label_len: u16,
    /// The label's first byte, so that siblings are passed without looking elsewhere.
    first: u8,
    child: u32,
    sibling: u32,
    parent: u32,
    /// The number of the path that ends here, or `NONE`.
    path: u32,
}

/// Paths, numbered as they come.
pub struct Radix {
    nodes: Vec<Node>,
    labels: Vec<u8>,
    /// Where each path ends.
    ends: Vec<u32>,
}

impl Radix {
    pub fn new() -> Self {
        let root = Node {
            label_at: 0,
            label_len: 0,
            first: 0,
            child: NONE,
            sibling: NONE,
            parent: NONE,
            path: NONE,
        };
        Radix { nodes: vec![root], labels: Vec::new(), ends: Vec::new() }
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn label(&self, node: u32) -> &[u8] {
        let node = &self.nodes[node as usize];
        &self.labels[node.label_at as usize..][..node.label_len as usize]
    }

    fn children(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.nodes[node as usize].child;
        std::iter::from_fn(move || {
            let node = (next != NONE).then_some(next)?;
            next = self.nodes[node as usize].sibling;
            Some(node)
        })
    }

    fn child(&self, node: u32, first: u8) -> Option<u32> {
        self.children(node).find(|child| self.nodes[*child as usize].first == first)
    }

    /// The number of a path, which is new if it was not there.
    pub fn insert(&mut self, path: &str) -> u32 {
        let mut rest = path.as_bytes();
        let mut at = 0;
        while let Some(first) = rest.first() {
            let Some(child) = self.child(at, *first) else {
                at = self.add(at, rest);
                break;
            };
            let common = self.label(child).iter().zip(rest).take_while(|(a, b)| a == b).count();
            if common < self.label(child).len() {
                self.split(child, common as u16);
            }
            rest = &rest[common..];
            at = child;
        }
        if self.nodes[at as usize].path == NONE {
            self.nodes[at as usize].path = self.ends.len() as u32;
            self.ends.push(at);
        }
        self.nodes[at as usize].path
    }

    fn add(&mut self, parent: u32, label: &[u8]) -> u32 {
        let new = self.nodes.len() as u32;
        let node = Node {
            label_at: self.labels.len() as u32,
            label_len: label.len() as u16,
            first: label[0],
            child: NONE,
            sibling: self.nodes[parent as usize].child,
            parent,
            path: NONE,
        };
        self.labels.extend_from_slice(label);
        self.nodes.push(node);
        self.nodes[parent as usize].child = new;
        new
    }

    /// Cuts a node's label after `kept` bytes: what was below it and ended in it moves down.
    fn split(&mut self, node: u32, kept: u16) {
        let new = self.nodes.len() as u32;
        let upper = &mut self.nodes[node as usize];
        let lower = Node {
            label_at: upper.label_at + u32::from(kept),
            label_len: upper.label_len - kept,
            first: self.labels[upper.label_at as usize + kept as usize],
            child: upper.child,
            sibling: NONE,
            parent: node,
            path: upper.path,
        };
        (upper.label_len, upper.child, upper.path) = (kept, new, NONE);
        if lower.path != NONE {
            self.ends[lower.path as usize] = new;
        }
        self.nodes.push(lower);
        let moved: Vec<u32> = self.children(new).collect();
        for child in moved {
            self.nodes[child as usize].parent = new;
        }
    }

    /// A path, by its number.
    pub fn path(&self, number: u32) -> String {
        let mut labels = Vec::new();
        self.climb(number, &mut labels);
        String::from_utf8_lossy(&labels).into_owned()
    }

    /// Puts a path's bytes into `bytes`.
    pub fn climb(&self, number: u32, bytes: &mut Vec<u8>) {
        bytes.clear();
        let mut at = self.ends[number as usize];
        while at != NONE {
            bytes.extend(self.label(at).iter().rev());
            at = self.nodes[at as usize].parent;
        }
        bytes.reverse();
    }

    /// The numbers of all paths that begin so, unsorted.
    pub fn below(&self, prefix: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        let (mut rest, mut at) = (prefix, 0);
        while let Some(first) = rest.first() {
            let Some(child) = self.child(at, *first) else { return found };
            let label = self.label(child);
            let common = label.len().min(rest.len());
            if label[..common] != rest[..common] {
                return found;
            }
            (rest, at) = (&rest[common..], child);
        }
        self.collect(at, &mut found);
        found
    }

    fn collect(&self, from: u32, found: &mut Vec<u32>) {
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            let node = &self.nodes[at as usize];
            if node.path != NONE {
                found.push(node.path);
            }
            waiting.extend(self.children(at));
        }
    }

    /// The numbers of all paths that contain `part`, unsorted: each label is read once, by an
    /// automaton that knows how much of `part` it has just seen.
    pub fn containing(&self, part: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        if part.is_empty() {
            self.collect(0, &mut found);
            return found;
        }
        let next = automaton(part);
        let mut waiting = vec![(0, 0)];
        while let Some((at, mut seen)) = waiting.pop() {
            for byte in self.label(at) {
                seen = next[seen * 256 + *byte as usize] as usize;
                if seen == part.len() {
                    break;
                }
            }
            if seen == part.len() {
                self.collect(at, &mut found);
                continue;
            }
            waiting.extend(self.children(at).map(|child| (child, seen)));
        }
        found
    }

    /// Gives back what was allocated ahead.
    pub fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.labels.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// For each number of bytes seen and each byte, how many are seen then (Knuth, Morris and Pratt).
fn automaton(part: &[u8]) -> Vec<u16> {
    let mut next = vec![0; part.len() * 256];
    next[part[0] as usize] = 1;
    let mut fallback = 0;
    for (seen, byte) in part.iter().enumerate().skip(1) {
        next.copy_within(fallback * 256..(fallback + 1) * 256, seen * 256);
        fallback = next[fallback * 256 + *byte as usize] as usize;
        next[seen * 256 + *byte as usize] = seen as u16 + 1;
    }
    next
}
