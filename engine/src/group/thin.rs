//! Deleting a group bit by bit, where there is no room to delete it at once (see `realm::parts`).

use super::{remove_group, remove_object};
use crate::catalog::Table;
use crate::chunked;
use crate::error::Result;
use crate::id::{Gid, Member, NameKey, split_name_key};
use crate::rows::RowsMut;

/// Deletes up to `most` members of a group, the deepest first; how many it were: none if it had
/// none. Of a chunked array its chunks go first, and count as much.
pub(crate) fn thin(rows: &mut impl RowsMut, gid: Gid, most: usize) -> Result<usize> {
    let mut open = vec![(gid, Vec::new())];
    let mut gone = 0;
    while gone < most
        && let Some((at, _)) = open.last()
    {
        let at = *at;
        let next = rows.first_from(Table::Names, NameKey::new(at, "").as_bytes())?;
        let inner = match next {
            Some((key, row)) if split_name_key(&key)?.0 == at => {
                Some((key.clone(), Member::from_row(&row)?))
            }
            _ => None,
        };
        match inner {
            Some((name, Member::Group(inner))) => open.push((inner, name)),
            Some((_, Member::Object(oid))) if chunked::rows::any(rows, oid)? => {
                gone += chunked::rows::remove_all(rows, oid, most - gone)?;
            }
            Some((name, Member::Object(oid))) => {
                rows.remove(Table::Names, &name)?;
                remove_object(rows, oid)?;
                gone += 1;
            }
            None => {
                let Some((emptied, name)) = open.pop().filter(|_| !open.is_empty()) else { break };
                rows.remove(Table::Names, &name)?;
                remove_group(rows, emptied)?;
                gone += 1;
            }
        }
    }
    Ok(gone)
}
