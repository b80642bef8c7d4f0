//! Settings: how objects below a group are indexed.
//!
//! A row of `index_settings` belongs to a group; a setting that it does not have is said by the
//! nearest group above that has it, then by the realm's root, then by the defaults. A group other
//! than the root whose row has objects laid out in another way than those above it is a *tag*: the
//! objects below it form families of their own. Tags that have objects laid out in the same way
//! share families (see `seal`).
//!
//! A row is a run of entries: a tag byte, a length (varint) and as many bytes. Integers are
//! little-endian.

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, id_key};
use engram_base::varint;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_columns::literal::Literal;
use engram_records::index_mode::IndexMode;
use engram_records::object::Record;

/// Whether attribute groups follow what happens to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Policy {
    /// They are formed when a family is first sealed, and stay, with its splits by value: neither
    /// sizes, nor what is queried, nor hints change them.
    Fixed = 0,
    /// They are formed anew from what occurs, and is queried, together.
    #[default]
    Dynamic = 1,
}

/// How objects below a group are indexed; `None` where the group above decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexSettings {
    /// When.
    pub mode: Option<IndexMode>,
    /// How many keys an attribute group has at most; 0 for all in one.
    pub attributes_per_group: Option<u32>,
    /// Whether attribute groups may change.
    pub policy: Option<Policy>,
    /// How many full segments' worth of objects a family has before it is split by value.
    pub split_threshold: Option<u32>,
    /// Split here: objects whose attribute is below the value, and the others.
    pub split_on: Option<(String, Literal)>,
    /// How many objects a segment has at most.
    pub segment_rows: Option<u32>,
    /// How many objects the tail has before they are sealed; the root's counts.
    pub tail_rows: Option<u32>,
    /// Keys of fewer objects in a segment than this share a group.
    pub merge_sf: Option<u32>,
    /// Percent of objects in common from which two attribute groups become one.
    pub merge_overlap: Option<u32>,
    /// How many objects the queue has before a commit drains a part; the root's counts.
    pub queue_max: Option<u32>,
}

/// The most objects that a segment may be asked to have: positions have 16 bits.
pub(crate) const SEGMENT_ROWS_MAX: u32 = 1 << 15;

/// Settings without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The most keys of an attribute group; 0 for all in one.
    pub attributes_per_group: usize,
    /// Whether attribute groups may change.
    pub policy: Policy,
    /// The full segments' worth of objects that a family has before it is split by value.
    pub split_threshold: usize,
    /// Where to split, if somebody has said so: at this value of this attribute.
    pub split_on: Option<(String, Literal)>,
    /// The most objects of a segment.
    pub segment_rows: usize,
    /// The objects that the tail has before they are sealed.
    pub tail_rows: usize,
    /// Keys of fewer objects in a segment than this share a group.
    pub merge_sf: usize,
    /// Percent of objects in common from which two attribute groups become one.
    pub merge_overlap: u32,
    /// The objects that the queue has before a commit drains a part.
    pub queue_max: usize,
}

impl Effective {
    /// The objects that a family has before it is split by value: full segments are counted, not
    /// those that there are, or small ones would split what is small.
    pub(crate) fn split_rows(&self, threshold: usize) -> u64 {
        (threshold as u64).saturating_mul(self.segment_rows as u64)
    }

    /// The fewest objects of a half for which a family is split because it is large.
    pub(crate) fn child_rows(&self) -> u64 {
        (self.segment_rows as u64 / 2).max(1)
    }

    /// The fewest objects of a half for which a family is split because a query asks for it.
    pub(crate) fn hinted_rows(&self) -> u64 {
        (self.segment_rows as u64 / 16).max(1)
    }

    /// The fewest objects, on average, for which a leaf gets a segment of its own.
    pub(crate) fn leaf_rows(&self) -> usize {
        (self.segment_rows / 64).max(1)
    }
}

impl IndexSettings {
    /// Refuses what cannot be.
    pub fn check(&self) -> Result<()> {
        let bounds = [
            ("attributes_per_group", self.attributes_per_group, 0, u32::MAX),
            ("split_threshold", self.split_threshold, 2, u32::MAX),
            ("segment_rows", self.segment_rows, 2, SEGMENT_ROWS_MAX),
            ("tail_rows", self.tail_rows, 1, 1 << 20),
            ("merge_sf", self.merge_sf, 0, SEGMENT_ROWS_MAX),
            ("merge_overlap", self.merge_overlap, 1, 100),
            ("queue_max", self.queue_max, 1, 1 << 30),
        ];
        for (what, value, least, most) in bounds {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                fail!(Argument, "{what} is {value}: give a number from {least} to {most}");
            }
        }
        match &self.split_on {
            Some((key, _)) => engram_base::name::check_key("attribute key", key),
            None => Ok(()),
        }
    }

    /// What is not said here, as `above` says it.
    fn or(self, above: IndexSettings) -> IndexSettings {
        IndexSettings {
            mode: self.mode.or(above.mode),
            attributes_per_group: self.attributes_per_group.or(above.attributes_per_group),
            policy: self.policy.or(above.policy),
            split_threshold: self.split_threshold.or(above.split_threshold),
            split_on: self.split_on.or(above.split_on),
            segment_rows: self.segment_rows.or(above.segment_rows),
            tail_rows: self.tail_rows.or(above.tail_rows),
            merge_sf: self.merge_sf.or(above.merge_sf),
            merge_overlap: self.merge_overlap.or(above.merge_overlap),
            queue_max: self.queue_max.or(above.queue_max),
        }
    }

    /// How objects are laid out in segments: what the root alone says is left out.
    pub(crate) fn layout(&self) -> Effective {
        let here = IndexSettings { mode: None, tail_rows: None, queue_max: None, ..self.clone() };
        here.effective()
    }

    /// The same without gaps.
    pub fn effective(self) -> Effective {
        let number = |value: Option<u32>, default: usize| value.map_or(default, |v| v as usize);
        let per_group = number(self.attributes_per_group, 4);
        Effective {
            attributes_per_group: if per_group == 0 { usize::MAX } else { per_group },
            policy: self.policy.unwrap_or_default(),
            split_threshold: number(self.split_threshold, 100),
            split_on: self.split_on,
            segment_rows: number(self.segment_rows, 4096),
            tail_rows: number(self.tail_rows, 256),
            merge_sf: number(self.merge_sf, 16),
            merge_overlap: self.merge_overlap.unwrap_or(90),
            queue_max: number(self.queue_max, 65_536),
        }
    }

    fn numbers(&mut self) -> [(u8, &mut Option<u32>); 7] {
        [
            (2, &mut self.attributes_per_group),
            (4, &mut self.split_threshold),
            (6, &mut self.segment_rows),
            (7, &mut self.tail_rows),
            (8, &mut self.merge_sf),
            (9, &mut self.merge_overlap),
            (10, &mut self.queue_max),
        ]
    }

    /// The row.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        let mut entry = |tag: u8, bytes: &[u8]| {
            row.push(tag);
            varint::push(&mut row, bytes.len() as u64);
            row.extend_from_slice(bytes);
        };
        if let Some(mode) = self.mode {
            entry(1, &[mode as u8]);
        }
        if let Some(policy) = self.policy {
            entry(3, &[policy as u8]);
        }
        if let Some((key, value)) = &self.split_on {
            let mut bytes = Vec::new();
            push_split(&mut bytes, key, value);
            entry(5, &bytes);
        }
        for (tag, value) in self.clone().numbers() {
            if let Some(value) = value {
                entry(tag, &value.to_le_bytes());
            }
        }
        row
    }

    /// What a row says.
    pub fn parse(mut row: &[u8]) -> Result<Self> {
        let mut settings = IndexSettings::default();
        while let Some((&tag, rest)) = row.split_first() {
            row = rest;
            let bytes = varint::take_bytes(&mut row);
            let understood = bytes.and_then(|bytes| settings.take(tag, bytes));
            if understood.is_none() {
                fail!(Corrupt, "a row of `index_settings` has an entry {tag} that cannot be read");
            }
        }
        match settings.check() {
            Ok(()) => Ok(settings),
            Err(error) => fail!(Corrupt, "a row of `index_settings`: {}", error.message()),
        }
    }

    fn take(&mut self, tag: u8, bytes: &[u8]) -> Option<()> {
        match (tag, bytes) {
            (1, [mode]) => self.mode = Some(IndexMode::from_byte(*mode)?),
            (3, [0]) => self.policy = Some(Policy::Fixed),
            (3, [1]) => self.policy = Some(Policy::Dynamic),
            (5, bytes) => self.split_on = Some(take_split(bytes)?),
            (tag, bytes) => {
                let value = u32::from_le_bytes(bytes.try_into().ok()?);
                *self.numbers().into_iter().find(|(known, _)| *known == tag)?.1 = Some(value);
            }
        }
        Some(())
    }
}

fn push_split(bytes: &mut Vec<u8>, key: &str, value: &Literal) {
    varint::push(bytes, key.len() as u64);
    bytes.extend_from_slice(key.as_bytes());
    match value {
        Literal::Int(value) => {
            bytes.push(b'i');
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Literal::Big(value) => {
            bytes.push(b'u');
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Literal::Float(value) => {
            bytes.push(b'f');
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Literal::Text(text) => {
            bytes.push(b't');
            bytes.extend_from_slice(text.as_bytes());
        }
    }
}

fn take_split(mut bytes: &[u8]) -> Option<(String, Literal)> {
    let key = std::str::from_utf8(varint::take_bytes(&mut bytes)?).ok()?;
    let (kind, value) = bytes.split_first()?;
    let word = || value.try_into().ok();
    let value = match kind {
        b'i' => Literal::Int(i64::from_le_bytes(word()?)),
        b'u' => Literal::Big(u64::from_le_bytes(word()?)),
        b'f' => Literal::Float(f64::from_le_bytes(word()?)),
        b't' => Literal::Text(std::str::from_utf8(value).ok()?.to_owned()),
        _ => return None,
    };
    Some((key.to_owned(), value))
}

/// The settings that a group has itself.
pub fn own(rows: &mut dyn Rows, group: Gid) -> Result<Option<IndexSettings>> {
    match rows.get(Table::IndexSettings, &id_key(group))? {
        Some(row) => IndexSettings::parse(&row).map(Some),
        None => Ok(None),
    }
}

fn parent(rows: &mut dyn Rows, group: Gid) -> Result<Option<Gid>> {
    let record = rows.glance(Table::Groups, &id_key(group))?;
    record.map(|row| Ok(Record::parse(&row)?.parent)).transpose()
}

/// The settings that hold in a group, and its tag: the nearest group that has its objects laid out
/// in another way than those above it, 0 for the root. In a batch none of the rows becomes a guard
/// (see `mode_cache`).
pub fn at(rows: &mut dyn Rows, group: Gid) -> Result<(IndexSettings, Gid)> {
    if !rows.has_index_settings()? {
        return Ok((IndexSettings::default(), 0));
    }
    let (mut said, mut above, mut steps) = (Vec::new(), group, 0);
    loop {
        let Some(parent) = parent(rows, above)? else {
            fail!(NotFound, "the group {above:#x} was deleted: open it again by its path");
        };
        if let Some(row) = rows.glance(Table::IndexSettings, &id_key(above))? {
            said.push((above, parent, IndexSettings::parse(&row)?));
        }
        (above, steps) = (parent, steps + 1);
        if above == 0 {
            return Ok(hold(said));
        }
        if steps > engram_ops::group::DEPTH_MAX {
            fail!(Corrupt, "the groups above {group:#x} form a loop: run verify");
        }
    }
}

/// What settings come to, the nearest first, each with its group and the one above that; and the
/// tag.
fn hold(said: Vec<(Gid, Gid, IndexSettings)>) -> (IndexSettings, Gid) {
    let (mut settings, mut tag) = (IndexSettings::default(), 0);
    for (group, parent, own) in said.into_iter().rev() {
        let above = settings.layout();
        settings = own.or(settings);
        if parent != 0 && settings.layout() != above {
            tag = group;
        }
    }
    (settings, tag)
}

#[cfg(test)]
mod tests {
    use super::{IndexMode, IndexSettings, Policy, hold};
    use engram_columns::literal::Literal;

    fn full() -> IndexSettings {
        IndexSettings {
            mode: Some(IndexMode::Async),
            attributes_per_group: Some(0),
            policy: Some(Policy::Fixed),
            split_threshold: Some(7),
            split_on: Some(("temperature".into(), Literal::Float(-0.5))),
            segment_rows: Some(64),
            tail_rows: Some(8),
            merge_sf: Some(3),
            merge_overlap: Some(80),
            queue_max: Some(1000),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for settings in [IndexSettings::default(), full()] {
            assert_eq!(IndexSettings::parse(&settings.encode()).unwrap(), settings);
        }
        for value in [Literal::Int(-3), Literal::Big(u64::MAX), Literal::Text("é".into())] {
            let settings = IndexSettings { split_on: Some(("k".into(), value)), ..full() };
            assert_eq!(IndexSettings::parse(&settings.encode()).unwrap(), settings);
        }
    }

    #[test]
    fn a_damaged_row_is_refused_and_never_panics() {
        let row = full().encode();
        for end in 1..row.len() {
            let _ = IndexSettings::parse(&row[..end]);
        }
        for at in 0..row.len() {
            let mut damaged = row.clone();
            damaged[at] ^= 0x55;
            let _ = IndexSettings::parse(&damaged);
        }
        assert!(IndexSettings::parse(&[99, 0]).is_err());
        assert!(IndexSettings::parse(&[6, 4, 0, 0, 0, 0]).is_err(), "no rows in a segment");
    }

    #[test]
    fn what_is_not_said_is_inherited() {
        let own = IndexSettings { tail_rows: Some(1), ..IndexSettings::default() };
        let both = own.or(full());
        assert_eq!((both.tail_rows, both.segment_rows), (Some(1), Some(64)));
        assert_eq!(IndexSettings::default().effective().attributes_per_group, 4);
        assert_eq!(both.effective().attributes_per_group, usize::MAX);
    }

    #[test]
    fn a_tag_is_a_group_whose_objects_are_laid_out_in_another_way_than_those_above() {
        let rows = |rows| IndexSettings { segment_rows: Some(rows), ..IndexSettings::default() };
        let tag = |said| hold(said).1;
        assert_eq!(tag(vec![(1, 0, rows(64))]), 0, "the root is none");
        assert_eq!(tag(vec![(2, 1, rows(64)), (1, 0, rows(64))]), 0);
        assert_eq!(tag(vec![(2, 1, rows(4096))]), 0, "so it is anyway");
        assert_eq!(tag(vec![(3, 2, rows(64)), (2, 1, rows(64))]), 2);
        assert_eq!(tag(vec![(3, 2, rows(32)), (2, 1, rows(64))]), 3);
        let tail = IndexSettings { tail_rows: Some(1), mode: Some(IndexMode::Async), ..rows(64) };
        assert_eq!(tag(vec![(3, 2, tail), (2, 1, rows(64))]), 2, "those are about no segments");
    }
}
