//! Paths by which the kernel names what a program has open, and the folder that it is in.
//!
//! `/dev/stdin` and its like, `/dev/fd/N`, and `fd/N` and `cwd` below `/proc/self` are links, which
//! the kernel follows without a path. To it, a descriptor of ours is of an empty file: so what has
//! been opened here is found by the descriptor's number.
//!
//! *Limit*: these paths are known as they stand here, from the root on, and of this process alone.
//! Where the kernel opens what another one has, or by another path, that is refused.

use std::ffi::{CStr, c_char, c_int};

use engram_fs::Ino;

use crate::calls::whole_path;
use crate::descriptions;
use crate::descriptors;
use crate::inside::is_inside;
use crate::process;
use crate::trees::Tree;

/// What such a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// What a number stands for.
    Descriptor(c_int),
    /// The working folder.
    Folder,
}

impl Own {
    /// The node, if it is of ours.
    pub fn node(self) -> Option<(&'static Tree, Ino)> {
        match self {
            Own::Descriptor(fd) => descriptors::node(fd),
            Own::Folder => process::folder(),
        }
    }
}

/// The links of `/dev` to descriptors' links.
const STANDARD: [(&[u8], c_int); 3] = [(b"stdin", 0), (b"stdout", 1), (b"stderr", 2)];

/// What a path names of this process, and what is left of the path: nothing, or a slash and more.
pub fn named(path: &[u8]) -> Option<(Own, &[u8])> {
    let (own, rest) = if let Some(device) = path.strip_prefix(b"/dev/") {
        let standard =
            |(name, fd): &(&[u8], c_int)| Some((Own::Descriptor(*fd), device.strip_prefix(*name)?));
        STANDARD.iter().find_map(standard).or_else(|| descriptor(device))?
    } else {
        let rest = path.strip_prefix(b"/proc/")?;
        let (who, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
        let is_own = matches!(who, b"self" | b"thread-self")
            || number(who) == Some((std::process::id(), &b""[..]));
        if !is_own {
            return None;
        }
        match rest[1..].strip_prefix(b"cwd") {
            Some(rest) => (Own::Folder, rest),
            None => descriptor(&rest[1..])?,
        }
    };
    matches!(rest.first(), None | Some(b'/')).then_some((own, rest))
}

fn descriptor(path: &[u8]) -> Option<(Own, &[u8])> {
    let (fd, rest) = number(path.strip_prefix(b"fd/")?)?;
    Some((Own::Descriptor(c_int::try_from(fd).ok()?), rest))
}

/// The number with which a text begins, as the kernel writes it, and what follows.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let end = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(end);
    let is_plain = digits.first() != Some(&b'0') || digits.len() == 1;
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    Some((digits.parse().ok()?, rest))
}

/// The node of ours to which a link leads by itself. `None`: the kernel says where a link leads.
pub fn target(path: &CStr) -> Option<(&'static Tree, Ino)> {
    let path = path.to_bytes();
    if is_inside() || path.starts_with(b"/dev/std") {
        return None;
    }
    let (own, rest) = named(path)?;
    if rest.is_empty() { own.node() } else { None }
}

/// How the kernel writes where a link leads to a node: its path, or that it has none any more. The
/// thread is inside.
pub fn written(tree: &'static Tree, ino: Ino) -> engram_fs::Result<Vec<u8>> {
    let opened = tree.open()?;
    let path = opened.fs.stat(ino).and_then(|stat| whole_path(tree, opened, &stat));
    Ok(path.unwrap_or_else(|_| [&tree.prefix, format!("/#{ino} (deleted)").as_bytes()].concat()))
}

/// Whether the kernel has opened what is of ours, by a path that is not known here.
pub fn is_unknown(path: *const c_char, fd: c_int) -> bool {
    // SAFETY: a string, with which the kernel has opened something.
    let is_of_a_process =
        fd >= 0 && unsafe { CStr::from_ptr(path) }.to_bytes().starts_with(b"/proc/");
    is_of_a_process && descriptions::there().is_some_and(|shared| shared.is_marker(fd))
}
