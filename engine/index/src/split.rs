//! Splitting families by value, and taking shrunken halves back.
//!
//! A family with more segments than `split_threshold` is split where the objects of one key fall
//! apart best: at the median of the least values that its segments have of the key whose segments
//! differ most. The family's segments are then rewritten, one in a transaction, into its children.
//! When two children together have shrunk under a quarter of the threshold, they point back to
//! their parent, and are rewritten into it in the same way; but not where a query or a setting
//! asked for the split.

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

/// Where a family with these segments is best split: a key, and the first value of the upper half.
pub(crate) fn best(
    txn: &Txn<'_>,
    keys: &[ColumnKey],
    segments: &[SegmentEntry],
) -> Result<Option<(ColumnKey, Cell<'static>)>> {
    let mut best: Option<(usize, ColumnKey, Cell<'static>)> = None;
    for &key in keys.iter().filter(|key| !is_builtin(**key)) {
        let Some((apart, at)) = median(&zones_of(txn, key, segments)?) else { continue };
        if best.as_ref().is_none_or(|(most, ..)| apart > *most) {
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

/// How many zones of the commonest class lie wholly on one side of its median, and the median.
/// `None` where nothing lies on one of the sides.
fn median(zones: &[Zone]) -> Option<(usize, Cell<'static>)> {
    let classes = [ZoneClass::Number, ZoneClass::Time, ZoneClass::Text];
    let of = |class: ZoneClass| zones.iter().filter(move |zone| zone.class == class);
    let class = classes.into_iter().rev().max_by_key(|class| of(*class).count())?;
    // The middle of a string's prefixes may be no string.
    let middle = |zone: &Zone| match class {
        ZoneClass::Text => zone.max,
        _ => zone.min / 2 + zone.max / 2 + (zone.min & zone.max & 1),
    };
    let mut middles: Vec<u64> = of(class).filter(|zone| zone.min <= zone.max).map(middle).collect();
    middles.sort_unstable();
    let &at = middles.get(middles.len() / 2)?;
    let flags = CONSTANT | MIN_EXACT | MAX_EXACT;
    let one = Zone { segment: 0, sf: 1, class, flags, extra: 1, min: at, max: at };
    let at = one.constant()?;
    let (prefix, _) = prefix(&at)?;
    let below = of(class).filter(|zone| zone.max < prefix).count();
    let above = of(class).filter(|zone| zone.min >= prefix).count();
    let some_below = of(class).any(|zone| zone.min < prefix);
    let some_above = of(class).any(|zone| zone.max >= prefix);
    (some_below && some_above).then_some((below + above, at))
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

    #[test]
    fn the_median_leaves_something_on_both_sides() {
        let (apart, at) = median(&[zone(0.0, 1.0), zone(10.0, 11.0), zone(20.0, 21.0)]).unwrap();
        assert_eq!(apart, 2);
        assert!(matches!(at, Cell::Float(at) if at > 1.0 && at < 20.0), "{at:?}");
        let (apart, at) = median(&[zone(-8.0, 8.0), zone(-8.0, 8.0)]).unwrap();
        assert!(apart == 0 && matches!(at, Cell::Float(at) if at > -8.0 && at < 8.0), "{at:?}");
        assert!(median(&[zone(1.0, 1.0), zone(1.0, 1.0)]).is_none());
        assert!(median(&[]).is_none());
    }
}
