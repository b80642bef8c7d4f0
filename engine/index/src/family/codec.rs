//! A family's row: key tag (8, big-endian), number (4, big-endian); then the value, in varints.

use super::{Family, Split};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Gid;
use engram_base::varint;
use engram_columns::cell::Cell;
use engram_columns::segment::{AttributeGroup, GroupKind};

/// The key of a family's row.
pub(super) fn key(tag: Gid, id: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&tag.to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

impl Family {
    /// The row's value.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        let numbers = [
            u64::from(self.parent),
            u64::from(self.into),
            self.objects,
            u64::from(self.next_group),
            u64::from(self.renewed),
            self.seals,
            self.splits,
            self.merges,
            self.keys.len() as u64,
        ];
        for number in numbers {
            varint::push(&mut row, number);
        }
        for (key, count) in &self.keys {
            varint::push(&mut row, u64::from(*key));
            varint::push(&mut row, *count);
        }
        varint::push(&mut row, self.groups.len() as u64);
        for group in &self.groups {
            row.push(u8::from(group.kind == GroupKind::Runs));
            varint::push(&mut row, u64::from(group.id));
            varint::push(&mut row, group.columns.len() as u64);
            group.columns.iter().for_each(|key| varint::push(&mut row, u64::from(*key)));
        }
        match &self.split {
            None => row.push(0),
            Some(split) => {
                row.push(1 + u8::from(split.hinted));
                for number in [split.key, split.low, split.high] {
                    varint::push(&mut row, u64::from(number));
                }
                push_cell(&mut row, &split.at);
            }
        }
        row
    }

    /// A row.
    pub fn parse(key: &[u8], row: &[u8]) -> Result<Self> {
        let parsed = || -> Option<Family> {
            let (tag, id) = key.split_first_chunk::<8>()?;
            let id = u32::from_be_bytes(id.try_into().ok()?);
            let mut rest = row;
            let family = take(&mut rest, u64::from_be_bytes(*tag), id)?;
            rest.is_empty().then_some(family)
        };
        match parsed() {
            Some(family) => Ok(family),
            None => fail!(Corrupt, "a row of `index_families` ({key:02x?}) cannot be read"),
        }
    }
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    u32::try_from(varint::take(rest)?).ok()
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

fn take(rest: &mut &[u8], tag: Gid, id: u32) -> Option<Family> {
    let mut family = Family {
        id,
        tag,
        parent: number(rest)?,
        into: number(rest)?,
        objects: varint::take(rest)?,
        next_group: number(rest)?,
        renewed: number(rest)?,
        seals: varint::take(rest)?,
        splits: varint::take(rest)?,
        merges: varint::take(rest)?,
        ..Family::default()
    };
    for _ in 0..varint::take(rest)? {
        family.keys.push((number(rest)?, varint::take(rest)?));
    }
    if !family.keys.is_sorted_by(|a, b| a.0 < b.0) {
        return None;
    }
    for _ in 0..varint::take(rest)? {
        let kind = match byte(rest)? {
            0 => GroupKind::Columns,
            1 => GroupKind::Runs,
            _ => return None,
        };
        let mut group = AttributeGroup { id: number(rest)?, columns: Vec::new(), kind };
        for _ in 0..varint::take(rest)? {
            group.columns.push(number(rest)?);
        }
        family.groups.push(group);
    }
    family.split = match byte(rest)? {
        0 => None,
        kind @ 1..=2 => Some(Split {
            key: number(rest)?,
            low: number(rest)?,
            high: number(rest)?,
            at: take_cell(rest)?,
            hinted: kind == 2,
        }),
        _ => return None,
    };
    Some(family)
}

fn push_cell(row: &mut Vec<u8>, cell: &Cell<'_>) {
    let far = if let Cell::Far(far) = cell { far.ns() } else { 0 }.to_le_bytes();
    let (tag, bytes): (u8, &[u8]) = match cell {
        Cell::Int(value) => (b'i', &value.to_le_bytes()),
        Cell::Big(value) => (b'u', &value.to_le_bytes()),
        Cell::Float(value) => (b'f', &value.to_le_bytes()),
        Cell::Time(value) => (b'm', &value.to_le_bytes()),
        Cell::Far(_) => (b'M', &far),
        Cell::Text(text) => (b't', text.as_bytes()),
        Cell::Other => (b'o', &[]),
    };
    row.push(tag);
    varint::push(row, bytes.len() as u64);
    row.extend_from_slice(bytes);
}

fn take_cell(rest: &mut &[u8]) -> Option<Cell<'static>> {
    let tag = byte(rest)?;
    let bytes = varint::take_bytes(rest)?;
    let word = || bytes.try_into().ok();
    Some(match tag {
        b'i' => Cell::Int(i64::from_le_bytes(word()?)),
        b'u' => Cell::Big(u64::from_le_bytes(word()?)),
        b'f' => Cell::Float(f64::from_le_bytes(word()?)),
        b'm' => Cell::Time(i64::from_le_bytes(word()?)),
        b'M' => Cell::instant(i128::from_le_bytes(bytes.try_into().ok()?)),
        b't' => Cell::Text(std::str::from_utf8(bytes).ok()?.to_owned().into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{AttributeGroup, Cell, Family, GroupKind, Split, key};

    fn full(at: Cell<'static>) -> Family {
        Family {
            id: 7,
            tag: 1 << 40 | 3,
            parent: 2,
            into: 0,
            objects: 1 << 33,
            keys: vec![(1, 5), (400, 1 << 20)],
            groups: vec![
                AttributeGroup { id: 1, columns: vec![400], kind: GroupKind::Runs },
                AttributeGroup { id: 2, columns: vec![1], kind: GroupKind::Columns },
            ],
            next_group: 3,
            split: Some(Split { key: 400, at, low: 8, high: 9, hinted: true }),
            renewed: 77,
            seals: 1,
            splits: 2,
            merges: 3,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let cells = [
            Cell::Int(-1),
            Cell::Big(u64::MAX),
            Cell::Float(0.5),
            Cell::Time(3),
            Cell::instant(-(1 << 70)),
        ];
        for at in cells.into_iter().chain([Cell::Text("é".into())]) {
            let family = full(at);
            let read = Family::parse(&key(family.tag, 7), &family.encode()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{family:?}"));
        }
    }

    #[test]
    fn a_damaged_row_is_an_error_and_never_a_panic() {
        let family = full(Cell::Text("text".into()));
        let (key, row) = (key(family.tag, 7), family.encode());
        for end in 0..row.len() {
            assert!(Family::parse(&key, &row[..end]).is_err());
        }
        for at in 0..row.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = row.clone();
                damaged[at] ^= flip;
                let _ = Family::parse(&key, &damaged);
            }
        }
    }
}
