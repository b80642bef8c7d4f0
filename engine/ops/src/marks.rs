//! Marks: the rows by which realms know of moves (`transfers`, `leaving`, `received`).
//!
//! The meaning of the rows, and when each is put, stands above `transfer`, which makes the moves.

use crate::rows_mut::RowsMut;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Member, id_key};
use engram_base::scope::Scope;
use engram_catalog::meta::meta_u64;
use engram_catalog::rows::Rows;
use engram_catalog::{ReadTxn, Table};

/// The key in `meta` of how many moves between realms have come here, or gone from here. It is
/// raised in the commit with which one does.
pub const ARRIVED: &[u8] = b"arrived";

const VERSION: u8 = 1;
const TRANSFER_BYTES: usize = 32;
const LEAVING_BYTES: usize = 16;
const RECEIVED_BYTES: usize = 8;

/// How far a move is, as the realm knows that has its row in `transfers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The members are here, and on their way out.
    Leaving = 0,
    /// They are gone from here; the other realm's receipt may still be there.
    Gone = 1,
    /// They have come here from a published version, of which a new one without them is due.
    Arrived = 2,
    /// They are deleted, here and in the other realm: by what that one decides.
    Ending = 3,
}

impl Stage {
    /// Whether the members are here, and go if the other realm has the receipt.
    pub fn is_going(self) -> bool {
        matches!(self, Stage::Leaving | Stage::Ending)
    }
}

/// A row of `transfers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its number: random, the same in every realm that has to do with it.
    pub number: u64,
    /// How far it is.
    pub stage: Stage,
    /// The other realm: where the members go, or, if they have arrived, come from.
    pub other: Scope,
    /// Whose that realm is, if it is private.
    pub uid: u32,
    /// The process that does it, for messages.
    pub pid: u32,
    /// The lease of that process in the realm of this row. The move is running as long as the lease
    /// lives.
    pub lease: u64,
}

impl Transfer {
    fn to_row(self) -> [u8; TRANSFER_BYTES] {
        let mut row = [0; TRANSFER_BYTES];
        row[..3].copy_from_slice(&[VERSION, self.stage as u8, self.other as u8]);
        row[4..8].copy_from_slice(&self.uid.to_le_bytes());
        row[8..12].copy_from_slice(&self.pid.to_le_bytes());
        row[16..24].copy_from_slice(&self.lease.to_le_bytes());
        row
    }

    /// Reads a row of `transfers`.
    pub(crate) fn parse(key: &[u8], row: &[u8]) -> Result<Self> {
        let (Ok(key), Ok(row)) = (<[u8; 8]>::try_from(key), <&[u8; TRANSFER_BYTES]>::try_from(row))
        else {
            fail!(Corrupt, "a row of `transfers` has {} and {} bytes", key.len(), row.len())
        };
        let stage = match row[1] {
            0 => Stage::Leaving,
            1 => Stage::Gone,
            2 => Stage::Arrived,
            3 => Stage::Ending,
            stage => fail!(Corrupt, "a move is at the unknown stage {stage}"),
        };
        let other = Scope::ALL.into_iter().find(|scope| *scope as u8 == row[2]);
        let (VERSION, Some(other)) = (row[0], other) else {
            fail!(Corrupt, "a move has version {} and scope {}", row[0], row[2])
        };
        let word = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().expect("four"));
        let lease = u64::from_le_bytes(row[16..24].try_into().expect("eight bytes"));
        let number = u64::from_be_bytes(key);
        Ok(Transfer { number, stage, other, uid: word(4), pid: word(8), lease })
    }

    /// Writes the row.
    pub fn put(self, rows: &mut dyn RowsMut) -> Result<()> {
        rows.put(Table::Transfers, &id_key(self.number), &self.to_row())
    }

    /// Every move that a realm knows of.
    pub fn all(txn: &ReadTxn<'_>) -> Result<Vec<Transfer>> {
        let mut all = Vec::new();
        let mut cursor = txn.seek(Table::Transfers, &[])?;
        while let Some((key, row)) = cursor.next()? {
            all.push(Transfer::parse(key, row)?);
        }
        Ok(all)
    }

    /// The move of this number, as a transaction sees it.
    pub fn find(rows: &mut dyn Rows, number: u64) -> Result<Option<Transfer>> {
        let key = id_key(number);
        let row = rows.get(Table::Transfers, &key)?;
        row.map(|row| Transfer::parse(&key, &row)).transpose()
    }
}

/// A member on its way, as a row of `leaving` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// What it is.
    pub member: Member,
    /// Whether the member is a mirror of another realm's group. Then its members go, and it has no
    /// record that could.
    pub mirror: bool,
    /// How many groups of the move are above it.
    pub depth: u32,
}

impl Going {
    fn to_row(self, number: u64) -> [u8; LEAVING_BYTES] {
        let mut row = [0; LEAVING_BYTES];
        row[..8].copy_from_slice(&number.to_le_bytes());
        row[8] = match (self.member, self.mirror) {
            (Member::Object(_), _) => b'O',
            (Member::Group(_), false) => b'G',
            (Member::Group(_), true) => b'M',
        };
        row[12..].copy_from_slice(&self.depth.to_le_bytes());
        row
    }

    /// Reads a row of `leaving`: the move's number, and what goes; `CorruptError` if it can be
    /// none.
    #[expect(clippy::missing_panics_doc, reason = "the row's length is checked first")]
    pub fn parse(key: &[u8], row: &[u8]) -> Result<(u64, Self)> {
        let (Ok(key), Ok(row)) = (<[u8; 8]>::try_from(key), <&[u8; LEAVING_BYTES]>::try_from(row))
        else {
            fail!(Corrupt, "a row of `leaving` has {} and {} bytes", key.len(), row.len())
        };
        let id = u64::from_be_bytes(key);
        let (member, mirror) = match row[8] {
            b'O' => (Member::Object(id), false),
            b'G' => (Member::Group(id), false),
            b'M' => (Member::Group(id), true),
            kind => fail!(Corrupt, "a row of `leaving` has the unknown kind {kind:#x}"),
        };
        let number = u64::from_le_bytes(row[..8].try_into().expect("eight bytes"));
        let depth = u32::from_le_bytes(row[12..].try_into().expect("four bytes"));
        Ok((number, Going { member, mirror, depth }))
    }

    /// Marks it as on its way, unless it is already.
    pub fn mark(self, rows: &mut dyn RowsMut, number: u64) -> Result<()> {
        refuse_leaving(rows, self.member.id())?;
        rows.put(Table::Leaving, &id_key(self.member.id()), &self.to_row(number))
    }
}

/// The members of a move, those that lie deepest last.
pub fn members_of(rows: &mut dyn Rows, number: u64) -> Result<Vec<Going>> {
    let mut all = Vec::new();
    let mut from = Vec::new();
    while let Some((mut key, row)) = rows.first_from(Table::Leaving, &from)? {
        let (of, going) = Going::parse(&key, &row)?;
        if of == number {
            all.push(going);
        }
        key.push(0);
        from = key;
    }
    all.sort_by_key(|going| going.depth);
    Ok(all)
}

/// Takes the marks of a move's members away.
pub fn unmark(rows: &mut dyn RowsMut, members: &[Going]) -> Result<()> {
    members.iter().try_for_each(|going| rows.remove(Table::Leaving, &id_key(going.member.id())))
}

/// What to say of a member that is on its way, to a caller that would lock it. A mirror is no
/// member.
pub fn on_its_way(rows: &mut dyn Rows, id: u64) -> Result<Option<Error>> {
    let key = id_key(id);
    match rows.get(Table::Leaving, &key)? {
        Some(row) if !Going::parse(&key, &row)?.1.mirror => match refuse_leaving(rows, id) {
            Err(error) if error.kind() == Kind::Busy => Ok(Some(error)),
            done => done.map(|()| None),
        },
        _ => Ok(None),
    }
}

/// `BusyError`, if this member is on its way to another realm.
pub fn refuse_leaving(rows: &mut dyn Rows, id: u64) -> Result<()> {
    let key = id_key(id);
    let number = match rows.get(Table::Leaving, &key)? {
        Some(row) => Going::parse(&key, &row)?.0,
        None => return Ok(()),
    };
    let Some(by) = Transfer::find(rows, number)? else {
        fail!(Corrupt, "{id:#x} is on its way by move {number:016x}, which is no more")
    };
    if by.stage == Stage::Ending {
        fail!(
            Busy,
            "{id:#x} is being deleted, with a group that it lies in, by process {}; if that is \
             gone, who opens the pool for writing ends it",
            by.pid
        );
    }
    let (what, who) = match by.other {
        Scope::Private => (
            format!("the private realm of user {}", by.uid),
            format!("user {} or root ends it, by opening the pool for writing", by.uid),
        ),
        other => {
            (format!("what is {}", other.as_str()), "who opens the pool for writing ends it".into())
        }
    };
    fail!(
        Busy,
        "{id:#x} is on its way to or from {what}, by process {}: it can be read, and is changed \
         and locked when that is done; if that process is gone, {who}",
        by.pid
    )
}

/// Tells a process that looks at several realms that something has come here from another, or gone
/// there; and one that has looked, and would change something here.
pub fn pass(rows: &mut dyn RowsMut) -> Result<()> {
    let number = meta_u64(rows.get(Table::Meta, ARRIVED)?.as_deref())?;
    rows.put(Table::Meta, ARRIVED, &(number + 1).to_le_bytes())
}

/// A row of `received`: what says that a move has arrived, and which realm has the move's own row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The users who see the realm that has the move's own row.
    pub scope: Scope,
    /// Whose that realm is, if it is private.
    pub uid: u32,
}

impl Receipt {
    fn to_row(self) -> [u8; RECEIVED_BYTES] {
        let mut row = [VERSION, self.scope as u8, 0, 0, 0, 0, 0, 0];
        row[4..].copy_from_slice(&self.uid.to_le_bytes());
        row
    }

    fn parse(row: &[u8]) -> Result<Self> {
        let scope = row.get(1).and_then(|byte| Scope::ALL.into_iter().find(|s| *s as u8 == *byte));
        match (<&[u8; RECEIVED_BYTES]>::try_from(row), scope) {
            (Ok([VERSION, _, _, _, uid @ ..]), Some(scope)) => {
                Ok(Receipt { scope, uid: u32::from_le_bytes(*uid) })
            }
            _ => fail!(Corrupt, "a row of `received` is {row:?}"),
        }
    }

    /// Every receipt of a realm, by the numbers of the moves.
    pub fn all(txn: &ReadTxn<'_>) -> Result<Vec<(u64, Receipt)>> {
        let mut all = Vec::new();
        let mut cursor = txn.seek(Table::Received, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let Ok(key) = <[u8; 8]>::try_from(key) else {
                fail!(Corrupt, "a key of `received` has {} bytes", key.len())
            };
            all.push((u64::from_be_bytes(key), Receipt::parse(row)?));
        }
        Ok(all)
    }

    /// Notes in the realm that receives that a move has arrived.
    pub fn put(self, rows: &mut dyn RowsMut, number: u64) -> Result<()> {
        pass(rows)?;
        rows.put(Table::Received, &id_key(number), &self.to_row())
    }

    /// Forgets that.
    pub fn remove(rows: &mut dyn RowsMut, number: u64) -> Result<()> {
        let key = id_key(number);
        if rows.has(Table::Received, &key)? { rows.remove(Table::Received, &key) } else { Ok(()) }
    }
}

/// Has a batch rely on that nothing moves to its realm or from it, until it is committed.
pub(crate) fn rely_on_all_moves(rows: &mut dyn Rows) -> Result<()> {
    if rows.is_list() {
        rows.get(Table::Meta, ARRIVED)?;
    }
    Ok(())
}

/// The number of a deletion that is done in one of these realms, and not yet in another: each of
/// these scopes with its snapshot.
pub fn half_deleted(scopes: &[Scope], txns: &[ReadTxn<'_>]) -> Result<Option<u64>> {
    for txn in txns {
        if txn.entries(Table::Transfers)? == 0 {
            continue;
        }
        let ending = Transfer::all(txn)?.into_iter().filter(|one| one.stage == Stage::Ending);
        for transfer in ending {
            let number = id_key(transfer.number);
            let both = scopes.iter().zip(txns);
            for (_, other) in both.filter(|(scope, _)| **scope == transfer.other) {
                if other.rows().has(Table::Received, &number)? {
                    return Ok(Some(transfer.number));
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
