//! Splitting families by value, and taking shrunken halves back.
//!
//! A family with more objects than `split_threshold` full segments have is split where the objects
//! of one key fall apart best: at the median of its segments, by the key that parts the most
//! objects whole segment by whole segment. Objects are counted, not segments: of those some are
//! small, and a split makes more of them. For the same reason both halves must be of some size, as
//! far as zones tell ([`Parted`]). The family's segments are then rewritten into its children.
//!
//! When two children together have shrunk under a quarter of the threshold, they point back to
//! their parent, and are rewritten into it in the same way; but not where a setting asked for the
//! split. Where a query did, that is so once they are together less than one half had to be.

use super::directory::SegmentEntry;
use super::family::{Families, Split};
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::Txn;
use engram_catalog::{Table, WriteTxn};
use engram_columns::cell::Cell;
use engram_columns::column_key::{ColumnKey, is_builtin};
use engram_columns::zone::{CONSTANT, MAX_EXACT, MIN_EXACT, ZONE_BYTES, Zone, ZoneClass, prefix};

/// The number of an attribute key, if anybody has ever used it.
pub(crate) fn known_key(txn: &Txn<'_>, key: &str) -> Result<Option<ColumnKey>> {
    match txn.get(Table::Keys, &[b"k", key.as_bytes()].concat())? {
        None => Ok(None),
        Some(row) => match <[u8; 4]>::try_from(row) {
            Ok(id) => Ok(Some(u32::from_le_bytes(id))),
            Err(_) => fail!(Corrupt, "an attribute key's number has {} bytes", row.len()),
        },
    }
}

/// Splits a leaf in two; its segments are rewritten later.
pub(crate) fn split(
    families: &mut Families,
    txn: &mut WriteTxn<'_>,
    id: u32,
    key: ColumnKey,
    at: Cell<'static>,
    hinted: bool,
) -> Result<()> {
    let low = families.make(txn, id)?;
    let high = families.make(txn, id)?;
    let family = families.change(id)?;
    family.split = Some(Split { key, at, low, high, hinted });
    family.splits += 1;
    Ok(())
}

/// Points both children of a split back to their parent.
pub(crate) fn unsplit(families: &mut Families, id: u32) -> Result<()> {
    let family = families.change(id)?;
    let Some(split) = family.split.take() else { return Ok(()) };
    family.merges += 1;
    for child in [split.low, split.high] {
        families.change(child)?.into = id;
    }
    Ok(())
}

/// How many objects of a family, as far as zones tell, are on either side of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parted {
    /// Objects of segments that lie wholly below.
    below: u64,
    /// Objects of segments that lie wholly above, the value included.
    above: u64,
    /// Objects of segments with both.
    both: u64,
    /// How many of these may be below: as if their values lay evenly between least and greatest.
    both_below: u64,
}

impl Parted {
    fn at(zones: &[Zone], class: ZoneClass, prefix: u64) -> Self {
        let mut parted = Parted::default();
        for zone in zones.iter().filter(|zone| zone.class == class && zone.min <= zone.max) {
            let rows = u64::from(zone.sf);
            match (zone.max < prefix, zone.min >= prefix) {
                (true, _) => parted.below += rows,
                (_, true) => parted.above += rows,
                _ => {
                    parted.both += rows;
                    parted.both_below += below(zone, prefix);
                }
            }
        }
        parted
    }

    /// Whether both sides have so many.
    pub(crate) fn leaves(&self, least: u64) -> bool {
        let above = self.above + self.both - self.both_below;
        (self.below + self.both_below).min(above) >= least.max(1)
    }
}

/// How many objects of a segment with this zone may lie below a value that is within it.
#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn below(zone: &Zone, prefix: u64) -> u64 {
    let number = |prefix: u64| {
        let flags = CONSTANT | MIN_EXACT | MAX_EXACT;
        match (Zone { flags, min: prefix, max: prefix, ..*zone }).constant()? {
            Cell::Float(value) => Some(value),
            Cell::Int(value) | Cell::Time(value) => Some(value as f64),
            _ => None,
        }
    };
    let share = match (number(zone.min), number(prefix), number(zone.max)) {
        (Some(min), Some(at), Some(max)) if max > min => (at - min) / (max - min),
        _ => 0.5,
    };
    let rows = f64::from(zone.sf);
    // One on either side is there for certain.
    ((rows * share) as u64).clamp(1.min(u64::from(zone.sf)), u64::from(zone.sf).max(2) - 1)
}

/// How a value would part the objects of these segments.
pub(crate) fn parted(
    txn: &Txn<'_>,
    key: ColumnKey,
    at: &Cell<'_>,
    segments: &[SegmentEntry],
) -> Result<Parted> {
    let Some((prefix, _)) = prefix(at) else { return Ok(Parted::default()) };
    let class = match at {
        Cell::Text(_) => ZoneClass::Text,
        Cell::Time(_) => ZoneClass::Time,
        _ => ZoneClass::Number,
    };
    Ok(Parted::at(&zones_of(txn, key, segments)?, class, prefix))
}

/// Where a family with these segments is best split into halves of at least so many objects: a key,
/// and the first value of the upper half.
pub(crate) fn best(
    txn: &Txn<'_>,
    keys: &[ColumnKey],
    segments: &[SegmentEntry],
    least: u64,
) -> Result<Option<(ColumnKey, Cell<'static>)>> {
    let mut best: Option<(u64, ColumnKey, Cell<'static>)> = None;
    for &key in keys.iter().filter(|key| !is_builtin(**key)) {
        let Some((parted, at)) = median(&zones_of(txn, key, segments)?) else { continue };
        let apart = parted.below + parted.above;
        if parted.leaves(least) && best.as_ref().is_none_or(|(most, ..)| apart > *most) {
            best = Some((apart, key, at));
        }
    }
    Ok(best.map(|(_, key, at)| (key, at)))
}

/// The zones of a column in these segments.
fn zones_of(txn: &Txn<'_>, key: ColumnKey, segments: &[SegmentEntry]) -> Result<Vec<Zone>> {
    let mut zones = Vec::new();
    let mut cursor = txn.seek(Table::IndexZones, &key.to_be_bytes())?;
    while let Some((row, value)) = cursor.next()? {
        if !row.starts_with(&key.to_be_bytes()) {
            break;
        }
        for zone in value.as_chunks::<ZONE_BYTES>().0 {
            let zone = Zone::decode(zone)?;
            if segments.binary_search_by_key(&zone.segment, |entry| entry.segment).is_ok() {
                zones.push(zone);
            }
        }
    }
    Ok(zones)
}

/// How the median of the zones of the commonest class parts their objects, and the median. `None`
/// where nothing lies on one of the sides.
fn median(zones: &[Zone]) -> Option<(Parted, Cell<'static>)> {
    let classes = [ZoneClass::Number, ZoneClass::Time, ZoneClass::Text];
    let of = |class: ZoneClass| zones.iter().filter(move |zone| zone.class == class);
    let rows = |class: &ZoneClass| of(*class).map(|zone| u64::from(zone.sf)).sum::<u64>();
    let class = classes.into_iter().rev().max_by_key(rows)?;
    // The middle of a string's prefixes may be no string.
    let middle = |zone: &Zone| match class {
        ZoneClass::Text => zone.max,
        _ => zone.min / 2 + zone.max / 2 + (zone.min & zone.max & 1),
    };
    let ordered = of(class).filter(|zone| zone.min <= zone.max);
    let mut middles: Vec<(u64, u64)> =
        ordered.map(|zone| (middle(zone), u64::from(zone.sf))).collect();
    middles.sort_unstable();
    let mut before = 0;
    let half = middles.iter().map(|(_, rows)| rows).sum::<u64>() / 2;
    let (at, _) = middles.into_iter().find(|(_, rows)| {
        before += rows;
        before > half
    })?;
    let flags = CONSTANT | MIN_EXACT | MAX_EXACT;
    let one = Zone { segment: 0, sf: 1, class, flags, extra: 1, min: at, max: at };
    let at = one.constant()?;
    let (prefix, _) = prefix(&at)?;
    let some_below = of(class).any(|zone| zone.min < prefix);
    let some_above = of(class).any(|zone| zone.max >= prefix);
    (some_below && some_above).then_some((Parted::at(zones, class, prefix), at))
}

#[cfg(test)]
mod tests {
    use super::{Cell, Zone, ZoneClass, median};
    use engram_columns::zone::prefix;

    fn zone(min: f64, max: f64) -> Zone {
        let prefix = |value| prefix(&Cell::Float(value)).unwrap().0;
        let (min, max) = (prefix(min), prefix(max));
        Zone { segment: 0, sf: 1, class: ZoneClass::Number, flags: 0, extra: 1, min, max }
    }

    fn weighing(rows: u32, min: f64, max: f64) -> Zone {
        Zone { sf: rows, ..zone(min, max) }
    }

    #[test]
    fn the_median_leaves_something_on_both_sides() {
        let (parted, at) = median(&[zone(0.0, 1.0), zone(10.0, 11.0), zone(20.0, 21.0)]).unwrap();
        assert_eq!((parted.below, parted.above, parted.both), (1, 1, 1));
        assert!(matches!(at, Cell::Float(at) if at > 1.0 && at < 20.0), "{at:?}");
        let (parted, at) = median(&[zone(-8.0, 8.0), zone(-8.0, 8.0)]).unwrap();
        assert_eq!(parted.both, 2);
        assert!(matches!(at, Cell::Float(at) if at > -8.0 && at < 8.0), "{at:?}");
        assert!(median(&[zone(1.0, 1.0), zone(1.0, 1.0)]).is_none());
        assert!(median(&[]).is_none());
    }

    #[test]
    fn the_median_is_of_objects_and_not_of_segments() {
        let many_small = (0..50).map(|at| weighing(1, f64::from(at), f64::from(at)));
        let mut zones: Vec<Zone> = many_small.collect();
        zones.extend([weighing(4000, 100.0, 101.0), weighing(4000, 200.0, 201.0)]);
        let (parted, at) = median(&zones).unwrap();
        assert!(matches!(at, Cell::Float(at) if at > 100.0), "{at:?}");
        assert!(parted.leaves(2000), "{parted:?}");
        // All but a few lie on one side: no half of a size is to be had there.
        let few = [weighing(10, 0.0, 1.0), weighing(4000, 5.0, 5.0)];
        let (parted, _) = median(&few).unwrap();
        assert!(!parted.leaves(11) && parted.leaves(10), "{parted:?}");
    }
}
