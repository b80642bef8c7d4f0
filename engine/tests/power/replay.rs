//! What may be on the medium when power fails, from a trace.
//!
//! Each page and each length that has changed since it was last synced may be there as it was then,
//! or as it was at any moment since; and not as a whole: a disk writes sectors of 512 bytes each
//! whole or not at all, persistent memory lines of 64. Names that have changed since their folder
//! was synced may be there or not, each as any other, but that some failures keep to the order that
//! a journal has. [`Medium::image`] chooses among all that by a seed.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Permissions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::common::Random;
use super::record::{Event, Name, Node, NodeId, PAGE, Trace};

/// What a disk writes whole.
pub const SECTOR: usize = 512;
/// What persistent memory writes whole.
pub const LINE: usize = 64;

type Bytes = Arc<[u8]>;

/// A page: what is on the medium, and what it has been since.
#[derive(Clone)]
struct Page {
    durable: Bytes,
    newer: Vec<Bytes>,
    /// Bytes that the next fence makes durable, and how many of `newer` there were when they were
    /// written back.
    leaving: Vec<(Range<usize>, usize)>,
}

/// A file, likewise.
#[derive(Clone, Default)]
struct Contents {
    pages: BTreeMap<usize, Page>,
    size: u64,
    sizes: Vec<u64>,
}

/// A change of names that may not be on the medium.
#[derive(Clone)]
struct Change {
    gone: Vec<Name>,
    come: Vec<(Name, NodeId)>,
}

/// Calls that are taken not to do what they promise: what the checks would find then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blind {
    /// What this is called.
    pub name: &'static str,
    /// Syncs of these files (by the end of their paths, or a part) reach nothing.
    pub files: &'static str,
    /// Of these, only syncs of so many pages or more, and of no more than that.
    pub pages: (usize, usize),
    /// Syncs of folders reach nothing.
    pub folders: bool,
    /// Fences wait for nothing.
    pub fences: bool,
}

/// The medium as it may be at one point of the trace.
pub struct Medium<'t> {
    trace: &'t Trace,
    files: HashMap<NodeId, Contents>,
    names: BTreeMap<Name, NodeId>,
    changes: Vec<Change>,
    blind: Blind,
    /// Files whose lines reach the medium one by one.
    lines: &'static [&'static str],
}

impl<'t> Medium<'t> {
    /// An empty one.
    pub fn new(trace: &'t Trace, blind: Blind, lines: &'static [&'static str]) -> Self {
        Medium {
            trace,
            files: HashMap::new(),
            names: BTreeMap::new(),
            changes: Vec::new(),
            blind,
            lines,
        }
    }

    fn node(&self, node: NodeId) -> &'t Node {
        &self.trace.nodes[node]
    }

    fn is_blind(&self, file: NodeId, pages: &Range<usize>) -> bool {
        let (least, most) = self.blind.pages;
        let count = pages.end.saturating_sub(pages.start);
        !self.blind.files.is_empty()
            && self.node(file).path.contains(self.blind.files)
            && (least..=most).contains(&count)
    }

    /// Goes one event further.
    pub fn pass(&mut self, event: &Event) {
        match event {
            Event::Bytes { file, page, bytes } => {
                let contents = self.files.entry(*file).or_default();
                let page = contents.pages.entry(*page).or_insert_with(Page::empty);
                page.newer.push(Arc::clone(bytes));
            }
            Event::Size { file, size } => {
                self.files.entry(*file).or_default().sizes.push(*size);
            }
            Event::Names { gone, come } => {
                self.changes.push(Change { gone: gone.clone(), come: come.clone() });
            }
            Event::Sync { file, pages } if !self.is_blind(*file, pages) => {
                let contents = self.files.entry(*file).or_default();
                contents.pages.range_mut(pages.clone()).for_each(|(_, page)| page.sync());
                contents.size = contents.sizes.drain(..).next_back().unwrap_or(contents.size);
            }
            Event::SyncNames { folder } if !self.blind.folders => {
                let here = |change: &Change| {
                    let all = change.gone.iter().chain(change.come.iter().map(|(name, _)| name));
                    all.clone().any(|(within, _)| within == folder)
                };
                let (synced, left): (Vec<_>, _) = self.changes.drain(..).partition(here);
                self.changes = left;
                for change in synced {
                    change.apply(&mut self.names);
                }
            }
            Event::WriteBack { file, bytes } => {
                let Some(contents) = self.files.get_mut(file) else { return };
                let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
                for (at, page) in contents.pages.range_mut(pages) {
                    let first = bytes.start.max(at * PAGE) - at * PAGE;
                    let end = bytes.end.min((at + 1) * PAGE) - at * PAGE;
                    page.leaving.push((first..end, page.newer.len()));
                }
            }
            Event::Fence if !self.blind.fences => {
                let pages = self.files.values_mut().flat_map(|file| file.pages.values_mut());
                pages.for_each(Page::fence);
            }
            _ => {}
        }
    }

    /// Makes in `root` what this seed lets be on the medium.
    pub fn image(&self, root: &Path, seed: u64) {
        let mut random = Random(seed);
        let style = Style::of(&mut random);
        let mut names = self.names.clone();
        let most = style.names.limit(self.changes.len(), &mut random);
        for change in &self.changes[..most] {
            if style.names != Whether::Any || random.below(2) == 0 {
                change.apply(&mut names);
            }
        }
        let mut made = HashMap::new();
        self.fill(root, 0, &names, &style, &mut random, &mut made);
    }

    fn fill(
        &self,
        path: &Path,
        folder: NodeId,
        names: &BTreeMap<Name, NodeId>,
        style: &Style,
        random: &mut Random,
        made: &mut HashMap<NodeId, PathBuf>,
    ) {
        let of_folder = (folder, String::new())..(folder + 1, String::new());
        for ((_, name), node) in names.range(of_folder) {
            let (path, about) = (path.join(name), self.node(*node));
            if about.folder {
                fs::create_dir(&path).expect("a folder");
                self.fill(&path, *node, names, style, random, made);
            } else if let Some(other) = made.get(node) {
                fs::hard_link(other, &path).expect("a second name");
                continue;
            } else {
                self.write(&path, *node, style, random);
                made.insert(*node, path.clone());
            }
            fs::set_permissions(&path, Permissions::from_mode(about.mode)).expect("a mode");
        }
    }

    fn write(&self, path: &Path, node: NodeId, style: &Style, random: &mut Random) {
        let file = File::create_new(path).expect("a new file");
        let Some(contents) = self.files.get(&node) else { return };
        let grain = if self.lines.iter().any(|part| self.node(node).path.contains(part)) {
            LINE
        } else {
            SECTOR
        };
        let taken = style.bytes.limit(contents.sizes.len(), random);
        let size = taken.checked_sub(1).map_or(contents.size, |last| contents.sizes[last]);
        let mut whole = vec![0; PAGE];
        for (at, page) in &contents.pages {
            page.choose(&mut whole, grain, style.bytes, random);
            let at = (at * PAGE) as u64;
            let len = size.saturating_sub(at).min(PAGE as u64) as usize;
            if whole[..len].iter().any(|byte| *byte != 0) {
                file.write_all_at(&whole[..len], at).expect("room for an image");
            }
        }
        file.set_len(size).expect("a length");
    }
}

impl Change {
    /// Makes the change, as far as it can be made: a name can only go where it is.
    fn apply(&self, names: &mut BTreeMap<Name, NodeId>) {
        let there = |name: &Name| names.contains_key(name) || self.has_come(name);
        if !self.gone.iter().all(there) {
            return;
        }
        for name in &self.gone {
            names.remove(name);
        }
        names.extend(self.come.iter().cloned());
    }

    fn has_come(&self, name: &Name) -> bool {
        self.come.iter().any(|(other, _)| other == name)
    }
}

impl Page {
    fn empty() -> Page {
        Page { durable: vec![0; PAGE].into(), newer: Vec::new(), leaving: Vec::new() }
    }

    fn sync(&mut self) {
        if let Some(last) = self.newer.drain(..).next_back() {
            self.durable = last;
        }
        self.leaving.clear();
    }

    /// Makes what was written back durable. Bytes stored since may be there or not.
    fn fence(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let mut durable = self.durable.to_vec();
        for (bytes, before) in self.leaving.drain(..) {
            let Some(then) = self.newer[..before].last().cloned() else { continue };
            durable[bytes.clone()].copy_from_slice(&then[bytes.clone()]);
            // Nothing older than what is there now can come back.
            for older in &mut self.newer[..before] {
                let mut patched = older.to_vec();
                patched[bytes.clone()].copy_from_slice(&then[bytes.clone()]);
                *older = patched.into();
            }
        }
        self.newer.retain(|newer| **newer != durable[..]);
        self.durable = durable.into();
    }

    /// One of what the page may be.
    fn choose(&self, whole: &mut [u8], grain: usize, style: Whether, random: &mut Random) {
        for at in (0..PAGE).step_by(grain) {
            let taken = style.limit(self.newer.len(), random);
            let from = taken.checked_sub(1).map_or(&self.durable, |last| &self.newer[last]);
            whole[at..at + grain].copy_from_slice(&from[at..at + grain]);
        }
    }
}

/// How much of what may be on the medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whether {
    /// Nothing that was not synced.
    Least,
    /// All of it.
    Most,
    /// Any part: of names, in the order in which they changed.
    Some,
    /// Any part: of names, whatever their order.
    Any,
}

impl Whether {
    fn of(random: &mut Random) -> Whether {
        [Whether::Least, Whether::Most, Whether::Some, Whether::Any][random.below(4) as usize]
    }

    /// How many of so many changes are there.
    fn limit(self, changes: usize, random: &mut Random) -> usize {
        match self {
            Whether::Least => 0,
            Whether::Most => changes,
            _ if changes == 0 => 0,
            _ => random.below(changes as u64 + 1) as usize,
        }
    }
}

/// How one failure goes.
struct Style {
    names: Whether,
    bytes: Whether,
}

impl Style {
    fn of(random: &mut Random) -> Style {
        Style { names: Whether::of(random), bytes: Whether::of(random) }
    }
}
