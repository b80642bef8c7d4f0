//! The plan of a publication to which several processes add: what each has told, and
//! which numbers its parts get.

use std::collections::{BTreeMap, HashMap};

use engram_base::error::{Error as StoreError, Kind};
use engram_parts::{checksum_of, dtype};
use engram_protocol::manifest::{Holder, Manifest, Part};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a process tells of an array that it has a share in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) dtype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<Vec<u64>>,
    /// Whether the process has stored the array as a whole: then one such process is enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_whole: bool,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) attrs: serde_json::Map<String, serde_json::Value>,
    pub(crate) boxes: Vec<Shape>,
}

/// A box: where it begins, and how long it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    #[serde(rename = "o")]
    pub(crate) offsets: Vec<u64>,
    #[serde(rename = "n")]
    pub(crate) counts: Vec<u64>,
}

impl Shape {
    pub(crate) fn covers(&self, other: &Shape) -> bool {
        let ends = |shape: &Shape, dim: usize| shape.offsets[dim] + shape.counts[dim];
        self.offsets.len() == other.offsets.len()
            && (0..self.offsets.len()).all(|dim| {
                self.offsets[dim] <= other.offsets[dim] && ends(other, dim) <= ends(self, dim)
            })
    }

    /// The part of a manifest that it is.
    pub(crate) fn part(&self, holder: u32, checksum: u64) -> Part {
        let (offsets, counts) = (self.offsets.clone(), self.counts.clone());
        Part { offsets, counts, holders: vec![holder], checksum: Some(checksum) }
    }

    pub(crate) fn meets(&self, other: &Shape) -> bool {
        let dims = self.offsets.len() == other.offsets.len();
        dims && self.part(0, 0).overlaps(&other.offsets, &other.counts)
    }
}

/// What a process tells the publisher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Who holds its parts; none where it has none.
    pub(crate) holder: Option<Holder>,
    pub(crate) shares: BTreeMap<String, Share>,
}

/// What the publisher tells a process: the number of the first of its parts of each array, and
/// those after it follow; none where it is to give them back.
pub(crate) type Numbers = BTreeMap<String, Option<u32>>;

/// What parts sum up to, by the array's name.
pub(crate) type Sums = BTreeMap<String, Vec<u64>>;

/// Arrays by their names, with each process that has a share, in the order of places.
pub(crate) type Shares<'t> = BTreeMap<&'t str, Vec<(usize, &'t Share)>>;

pub(crate) fn gathered(told: &[Told]) -> Result<Shares<'_>> {
    let mut arrays = Shares::new();
    for (process, own) in told.iter().enumerate() {
        for (path, share) in &own.shares {
            arrays.entry(path).or_default().push((process, share));
        }
    }
    // The uuid of an array is of 64 bits of its name.
    let mut sums = HashMap::new();
    for path in arrays.keys() {
        if let Some(other) = sums.insert(checksum_of(path.as_bytes()), *path) {
            return Err(Error::Argument(format!(
                "{other:?} and {path:?} cannot be published at once: publish one of them before \
                 the other"
            )));
        }
    }
    Ok(arrays)
}

/// The dtype and dims of an array, about which all processes that say them agree.
pub(crate) fn described<'t>(
    path: &str,
    shares: &[(usize, &'t Share)],
) -> Result<(&'t str, &'t [u64])> {
    if let Some((_, chosen)) = chosen_of(shares)
        && let Some(shape) = &chosen.shape
    {
        return Ok((&chosen.dtype, shape));
    }
    let (first, share) = shares[0];
    let mut shape: Option<(usize, &[u64])> = None;
    for (process, own) in shares {
        if own.dtype != share.dtype {
            let (one, other) = (shown(&share.dtype), shown(&own.dtype));
            return Err(Error::Argument(format!(
                "{path:?}: process {first} stores {one}, and process {process} stores {other}"
            )));
        }
        match (&own.shape, shape) {
            (Some(own), Some((who, before))) if own != before => {
                return Err(Error::Store(StoreError::new(
                    Kind::Exists,
                    format!(
                        "{path:?}: process {who} makes it with dims {before:?}, and process \
                         {process} with {own:?}"
                    ),
                )));
            }
            (Some(own), None) => shape = Some((*process, own)),
            _ => {}
        }
    }
    match shape {
        Some((_, shape)) => Ok((&share.dtype, shape)),
        None => Err(Error::Argument(format!(
            "{path:?}: no process has said its dims: one that makes it calls alloc"
        ))),
    }
}

/// The first process that has stored an array as a whole.
pub(crate) fn chosen_of<'t>(shares: &[(usize, &'t Share)]) -> Option<(usize, &'t Share)> {
    shares.iter().find(|(_, share)| share.is_whole).copied()
}

/// Whether an array that is there is what all who speak of it say that it is to be.
pub(crate) fn is_like(former: &Manifest, shares: &[(usize, &Share)]) -> bool {
    former.array().is_some_and(|before| {
        shares.iter().all(|(_, share)| {
            let is_same = share.shape.as_ref().is_none_or(|shape| *shape == before.shape);
            is_same && share.dtype == before.dtype
        })
    })
}

/// The numbers of the parts of each process. Where some have stored the array as a whole, the first
/// of these has it, and the others' are given back.
pub(crate) fn numbered(
    path: &str,
    shares: &[(usize, &Share)],
) -> Result<Vec<(usize, Option<u32>)>> {
    let chosen = chosen_of(shares).map(|(process, _)| process);
    if let (Some(chosen), Some((process, _))) =
        (chosen, shares.iter().find(|(_, share)| !share.is_whole && !share.boxes.is_empty()))
    {
        return Err(Error::Argument(format!(
            "{path:?}: process {chosen} has stored the whole of it, and process {process} a part"
        )));
    }
    let mut next = 0_u32;
    let mut numbers = Vec::with_capacity(shares.len());
    for (process, share) in shares {
        let is_kept = chosen.is_none_or(|chosen| chosen == *process);
        numbers.push((*process, (is_kept && !share.boxes.is_empty()).then_some(next)));
        if is_kept {
            next = next.saturating_add(share.boxes.len() as u32);
        }
    }
    Ok(numbers)
}

/// Refuses to replace an array by one that is not like it, or that lacks what it has. One that was
/// stored as a whole replaces any.
pub(crate) fn check_former(
    path: &str,
    former: &Manifest,
    new: &Manifest,
    is_whole: bool,
) -> Result<()> {
    let Some(own) = new.array() else { return Ok(()) };
    let Some(before) = former.array() else {
        return Err(Error::Store(StoreError::new(
            Kind::Exists,
            format!("{path:?} is a group of the cluster: take another id, or one below it"),
        )));
    };
    if is_whole {
        return Ok(());
    }
    if (&before.dtype, &before.shape) != (&own.dtype, &own.shape) {
        return Err(Error::Store(StoreError::new(
            Kind::Exists,
            format!(
                "{path:?}: what is stored is {} with dims {:?}, and {} with dims {:?} was asked \
                 for: free the id first",
                shown(&before.dtype),
                before.shape,
                shown(&own.dtype),
                own.shape
            ),
        )));
    }
    let lacking = |(_, part): &(usize, &Part)| {
        let items: u64 = part.counts.iter().product();
        let covered: u64 = own.parts.iter().map(|other| common(part, other)).sum();
        covered < items
    };
    match before.parts.iter().enumerate().find(lacking) {
        None => Ok(()),
        Some((_, part)) => Err(Error::Argument(format!(
            "{path:?}: the array that is there has values at {:?} of counts {:?}, and nobody has \
             stored all of these again: store them, or free the id first",
            part.offsets, part.counts
        ))),
    }
}

/// How many items two parts have in common.
pub(crate) fn common(one: &Part, other: &Part) -> u64 {
    let dims = one.offsets.iter().zip(&one.counts).zip(other.offsets.iter().zip(&other.counts));
    dims.map(|((a, n), (b, m))| (a + n).min(b + m).saturating_sub(*a.max(b))).product()
}

pub(crate) fn shown(text: &str) -> String {
    dtype::of_text(text).map_or_else(|_| text.to_owned(), |dtype| dtype.text())
}

/// A text for each process, one in each line.
pub(crate) fn lines(plan: &[Numbers]) -> String {
    plan.iter().map(|numbers| encoded(numbers) + "\n").collect()
}

pub(crate) fn encoded(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values are JSON")
}

pub(crate) fn decoded<T: for<'d> Deserialize<'d>>(what: &str, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::Argument(format!("{text:?} is not {what}: {error}")))
}

pub(crate) fn read_all(told: &[&str]) -> Result<Vec<Told>> {
    told.iter().map(|text| decoded("what a process has made", text)).collect()
}
