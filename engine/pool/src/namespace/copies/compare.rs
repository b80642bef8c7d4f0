//! Whether what was copied is there still, as it was.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{CopyItem, CopyPlan};
use engram_base::error::Result;
use engram_base::id::{Member, id_key};
use engram_ops::{chunk_rows, marks};
use engram_realm::{HasCore, look_together, space};
use engram_records::attrs;
use engram_records::object::{Record, Stored};

/// So many bytes of two values are compared at a time.
const PIECE: usize = 1 << 20;

/// An attribute's name, shape, dtype and bytes.
type NamedAttr<'p> = (&'p str, [&'p [u8]; 3]);

/// One of the two plans that are compared, with a place in it.
#[derive(Clone, Copy)]
struct ComparedItem<'p> {
    plan: &'p CopyPlan,
    nth: usize,
}

/// See [`CopyPlan::difference`].
pub(super) fn difference(
    plan: &CopyPlan,
    other: &CopyPlan,
) -> Result<Option<(String, &'static str)>> {
    let mut there: HashMap<(usize, &str), usize> = HashMap::new();
    for (nth, item) in other.items.iter().enumerate() {
        let first = item.above.map(|above| (above, item.name.as_str()));
        let further = item.further.iter().map(|(above, name)| (*above, name.as_str()));
        there.extend(first.into_iter().chain(further).map(|name| (name, nth)));
    }
    // Where each item is in the other.
    let mut places: Vec<usize> = Vec::with_capacity(plan.items.len());
    for (nth, item) in plan.items.iter().enumerate() {
        let place = match item.above {
            None => Some(0),
            Some(above) => there.get(&(places[above], item.name.as_str())).copied(),
        };
        let Some(place) = place else { return Ok(Some((plan.path(nth), "is not there"))) };
        places.push(place);
        if let Some(what) =
            unlike(ComparedItem { plan, nth }, ComparedItem { plan: other, nth: place })?
        {
            return Ok(Some((plan.path(nth), what)));
        }
    }
    for (nth, item) in plan.items.iter().enumerate() {
        let named = |(above, name): &(usize, String)| {
            there.get(&(places[*above], name.as_str())) == Some(&places[nth])
        };
        if !item.further.iter().all(named) {
            return Ok(Some((plan.path(nth), "has other names")));
        }
    }
    plan.check_kept()?;
    refuse_leaving(other)?;
    Ok(None)
}

/// Refuses members that are on their way elsewhere: two moves that each found the other's copy
/// would take away both.
fn refuse_leaving(plan: &CopyPlan) -> Result<()> {
    look_together(&plan.realms, |rows| {
        let mut items = plan.items.iter();
        items.try_for_each(|item| marks::refuse_leaving(&mut *rows[item.at], item.member.id()))
    })
}

impl<'p> ComparedItem<'p> {
    fn item(&self) -> &'p CopyItem {
        &self.plan.items[self.nth]
    }

    fn record(&self) -> Result<Record<'p>> {
        Record::parse(&self.item().row)
    }

    /// The attributes by their names, each with its bytes.
    fn attrs(&self) -> Result<Vec<NamedAttr<'p>>> {
        let keys = &self.plan.keys[self.item().at];
        let mut all = Vec::new();
        for entry in attrs::entries(self.record()?.attrs) {
            let entry = entry?;
            let name = keys.get(&entry.key).map_or("", String::as_str);
            all.push((name, [entry.shape(), entry.dtype(), entry.data()]));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Where values begin in memory: a copy of a piece of one.
    fn read(&self, stored: Stored<'p>, at: u64, len: usize) -> Result<Cow<'p, [u8]>> {
        if let Stored::Inline(bytes) = stored {
            return Ok(bytes[at as usize..][..len].into());
        }
        let Some((extent, ..)) = stored.extent() else { return Ok(Cow::default()) };
        let mut bytes = vec![0; len];
        let core = self.plan.realms[self.item().at].core();
        space::memory_at(core, extent)?.copy_out(at, &mut bytes);
        Ok(bytes.into())
    }
}

/// What of two members differs, but for their ids, owners, times and places.
fn unlike(one: ComparedItem<'_>, other: ComparedItem<'_>) -> Result<Option<&'static str>> {
    let (a, b) = (one.record()?, other.record()?);
    let is_group = matches!(one.item().member, Member::Group(_));
    let about = (a.class, a.dtype, a.ndim, a.shape, a.dims);
    let what = if about != (b.class, b.dtype, b.ndim, b.shape, b.dims) {
        Some("has another kind, dtype, shape or dimensions")
    } else if one.attrs()? != other.attrs()? {
        Some("has other attributes")
    } else if (a.flags.read_only, is_group || a.index == b.index) != (b.flags.read_only, true) {
        Some("has another protection or index mode")
    } else if one.item().settings != other.item().settings {
        Some("has other settings of the index")
    } else if !are_alike(one, a.stored, other, b.stored)? || !have_chunks_alike(one, other)? {
        Some("has another value")
    } else {
        None
    };
    Ok(what)
}

/// Whether two values are the same, but for chunks and segments.
fn are_alike(
    one: ComparedItem<'_>,
    a: Stored<'_>,
    other: ComparedItem<'_>,
    b: Stored<'_>,
) -> Result<bool> {
    match (a, b) {
        (Stored::Chunked(a), Stored::Chunked(b)) => return Ok(a == b),
        (Stored::Segmented(a), Stored::Segmented(b)) => return Ok(a.nbytes == b.nbytes),
        (Stored::Inline(_), Stored::Inline(_))
        | (Stored::Contiguous { .. }, Stored::Contiguous { .. }) => {}
        _ => return Ok(false),
    }
    if a.nbytes() != b.nbytes() {
        return Ok(false);
    }
    let mut at = 0;
    while at < a.nbytes() {
        let len = usize::try_from(a.nbytes() - at).unwrap_or(PIECE).min(PIECE);
        if one.read(a, at, len)? != other.read(b, at, len)? {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

fn have_chunks_alike(one: ComparedItem<'_>, other: ComparedItem<'_>) -> Result<bool> {
    let (a, b) = (&one.item().chunks, &other.item().chunks);
    if a.len() != b.len() {
        return Ok(false);
    }
    let behind = id_key(0).len();
    for ((key, row), (other_key, other_row)) in a.iter().zip(b) {
        let (a, b) = (chunk_rows::parse(row)?.stored, chunk_rows::parse(other_row)?.stored);
        if key[behind..] != other_key[behind..] || !are_alike(one, a, other, b)? {
            return Ok(false);
        }
    }
    Ok(true)
}
