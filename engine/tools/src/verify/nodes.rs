//! The nodes of a catalog's page: keys and values, or keys and the pages below.

#[cfg(feature = "faults")]
use super::meta::{Meta, TreeHead};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;

/// The bytes before a page's list of nodes.
pub(super) const HEAD: usize = 16;
/// The bytes before a node's key.
const NODE: usize = 8;
/// The longest key that LMDB takes.
const KEY_MAX: usize = 511;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x08;
/// Flags of a leaf's node: its value lies in pages of its own, or is a tree's head.
pub(super) const BIG: u16 = 0x01;
pub(super) const TREE: u16 = 0x02;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A node of a page: where it lies, and what it says of itself.
pub(super) struct PageNode<'p> {
    pub at: usize,
    pub size: usize,
    pub flags: u16,
    pub key: &'p [u8],
    /// A leaf's value as far as it lies in the page; of a branch the page below.
    pub data: &'p [u8],
    /// The length of a leaf's value, or the number of the page below.
    pub word: u64,
}

/// The keys that a page may have: any where nothing is said.
#[derive(Clone, Copy, Default)]
pub(super) struct Between<'k> {
    /// The least of them.
    pub from: Option<&'k [u8]>,
    /// What is greater than all of them.
    pub to: Option<&'k [u8]>,
}

/// The nodes of a page, which fill it without gap or overlap.
pub(super) fn nodes_of(page: &[u8], number: u64, leaf: bool) -> Result<Vec<PageNode<'_>>> {
    let damaged =
        |what: &str| Error::new(Kind::Corrupt, format!("page {number} is damaged: {what}"));
    if u64_at(page, 0) != Some(number) {
        return Err(damaged("it says another number"));
    }
    let kind = if leaf { LEAF } else { BRANCH };
    if u16_at(page, 10) != Some(kind) {
        return Err(damaged(if leaf { "it is no leaf" } else { "it is no branch" }));
    }
    let lower = usize::from(u16_at(page, 12).unwrap_or(0));
    let upper = usize::from(u16_at(page, 14).unwrap_or(0));
    if lower < HEAD || !lower.is_multiple_of(2) || lower > upper || upper > page.len() {
        return Err(damaged("its bounds cannot be"));
    }
    let count = (lower - HEAD) / 2;
    if count < if leaf { 1 } else { 2 } {
        return Err(damaged("it has too few nodes"));
    }
    let mut nodes = Vec::with_capacity(count);
    for place in 0..count {
        let at = usize::from(u16_at(page, HEAD + place * 2).unwrap_or(0));
        if at < upper {
            return Err(damaged("a node lies in its free space"));
        }
        let Some(node) = node_at(page, at, leaf) else {
            return Err(damaged("a node goes beyond its end"));
        };
        nodes.push(node);
    }
    let mut places: Vec<(usize, usize)> = nodes.iter().map(|node| (node.at, node.size)).collect();
    places.sort_unstable();
    let mut end = upper;
    for (at, size) in places {
        if at != end {
            return Err(damaged("its nodes leave a gap, or overlap"));
        }
        end = at + size;
    }
    if end != page.len() {
        return Err(damaged("its nodes do not fill it"));
    }
    Ok(nodes)
}

fn node_at(page: &[u8], at: usize, leaf: bool) -> Option<PageNode<'_>> {
    let [low, high, flags] = [u16_at(page, at)?, u16_at(page, at + 2)?, u16_at(page, at + 4)?];
    let key_bytes = usize::from(u16_at(page, at + 6)?);
    let key = page.get(at + NODE..at + NODE + key_bytes)?;
    let word = u64::from(low) | u64::from(high) << 16;
    let from = at + NODE + key_bytes;
    let (data, word): (&[u8], u64) = match (leaf, flags) {
        (false, _) => (&[], word | u64::from(flags) << 32),
        (true, BIG) => (page.get(from..from + 8)?, word),
        (true, _) => (page.get(from..from.checked_add(word as usize)?)?, word),
    };
    let size = (NODE + key_bytes + data.len()).next_multiple_of(2);
    Some(PageNode { at, size, flags: if leaf { flags } else { 0 }, key, data, word })
}

/// Whether the keys of a page ascend, and lie where the branch above says.
pub(super) fn in_order(
    nodes: &[PageNode<'_>],
    numbers: bool,
    leaf: bool,
    between: Between<'_>,
) -> Result<()> {
    let Between { from, to } = between;
    let less = |a: &[u8], b: &[u8]| {
        if numbers { u64_at(a, 0) < u64_at(b, 0) } else { a < b }
    };
    // The first key of a branch stands for all below it, and is not looked at.
    let keys = &nodes[usize::from(!leaf)..];
    for (place, node) in keys.iter().enumerate() {
        let right_length = if numbers { node.key.len() == 8 } else { node.key.len() <= KEY_MAX };
        if node.key.is_empty() || !right_length {
            fail!(Corrupt, "it has a key of {} bytes", node.key.len());
        }
        if place > 0 && !less(keys[place - 1].key, node.key) {
            fail!(Corrupt, "its keys do not ascend");
        }
        if from.is_some_and(|from| less(node.key, from)) || to.is_some_and(|to| !less(node.key, to))
        {
            fail!(Corrupt, "its keys are not those that the page above leads to");
        }
    }
    Ok(())
}

/// Reads a page as each kind of page that there is.
#[cfg(feature = "faults")]
pub(crate) fn decode(page: &[u8]) {
    let number = u64_at(page, 0).unwrap_or(0);
    for leaf in [true, false] {
        if let Ok(nodes) = nodes_of(page, number, leaf) {
            for numbers in [true, false] {
                let _ =
                    in_order(&nodes, numbers, leaf, Between { from: Some(b"a"), to: Some(b"z") });
            }
            for node in &nodes {
                let _ = TreeHead::parse(node.data, 0);
            }
        }
    }
    let _ = Meta::parse(page, number, page.len() as u64);
}
