//! LMDB's side: the rows that the engine keeps for an array, put without an engine.
//!
//! The rows are copied from a pool's own catalog, so they are as long as the engine's: one in
//! `objects`, with the record, and one in `names`. Flags and map size are the engine's too.

use std::ffi::{CString, c_int};
use std::path::Path;
use std::ptr;

use lmdb_master_sys as ffi;

use crate::Result;
use crate::store::{BATCH, name};

const MAP_BYTES: usize = 64 << 30;
const PAGE_BYTES: f64 = 4096.0;
const FILE_MODE: u32 = 0o600;
/// The tables of a catalog, by their names on media.
const TABLES: [&str; 9] = [
    "objects",
    "groups",
    "names",
    "keys",
    "spans",
    "extents_by_offset",
    "extents_by_size",
    "extents_pending",
    "meta",
];

/// What the engine keeps for one array.
pub struct Rows {
    first_oid: u64,
    record: Vec<u8>,
    parent: [u8; 8],
    member: Vec<u8>,
}

/// An environment with the two tables.
pub struct Bare {
    env: *mut ffi::MDB_env,
    objects: ffi::MDB_dbi,
    names: ffi::MDB_dbi,
    rows: Rows,
    /// How many arrays' rows have been put.
    pub count: u64,
}

impl Rows {
    /// The rows of the last array in the catalog at `path`.
    pub fn of(path: &Path) -> Result<Self> {
        let env = open(path, ffi::MDB_RDONLY | ffi::MDB_NOLOCK)?;
        let copied = copy_rows(env);
        // SAFETY: the environment is open and no transaction on it is left.
        unsafe { ffi::mdb_env_close(env) };
        copied
    }
}

fn copy_rows(env: *mut ffi::MDB_env) -> Result<Rows> {
    let txn = begin(env, ffi::MDB_RDONLY)?;
    let (oid, record) = last(txn, table(txn, TABLES[0], 0)?)?;
    let (key, member) = last(txn, table(txn, TABLES[2], 0)?)?;
    // SAFETY: `txn` is live and not used again.
    unsafe { ffi::mdb_txn_abort(txn) };
    let first_oid = u64::from_be_bytes(oid[..8].try_into()?);
    Ok(Rows { first_oid, record, parent: key[..8].try_into()?, member })
}

impl Bare {
    /// An empty environment in `folder`, which is made.
    pub fn create(folder: &Path, rows: Rows) -> Result<Self> {
        std::fs::create_dir(folder)?;
        let env = open(folder, ffi::MDB_WRITEMAP | ffi::MDB_NOTLS | ffi::MDB_NOSYNC)?;
        let txn = begin(env, 0)?;
        let objects = table(txn, TABLES[0], ffi::MDB_CREATE)?;
        let names = table(txn, TABLES[2], ffi::MDB_CREATE)?;
        commit(txn)?;
        Ok(Bare { env, objects, names, rows, count: 0 })
    }

    /// Puts arrays' rows up to `count`, in batches.
    pub fn fill(&mut self, count: u64, random: bool) -> Result<()> {
        while self.count < count {
            self.put((count - self.count).min(BATCH), random)?;
        }
        Ok(())
    }

    /// Puts the rows of `count` arrays, in one transaction.
    pub fn put(&mut self, count: u64, random: bool) -> Result<()> {
        let txn = begin(self.env, 0)?;
        for _ in 0..count {
            let oid = self.rows.first_oid + self.count;
            let name = name(self.count, random);
            let mut key = [0; 64];
            key[..8].copy_from_slice(&self.rows.parent);
            key[8..8 + name.len()].copy_from_slice(name.as_bytes());
            self.rows.member[1..9].copy_from_slice(&oid.to_le_bytes());
            put(txn, self.objects, &oid.to_be_bytes(), &self.rows.record)?;
            put(txn, self.names, &key[..8 + name.len()], &self.rows.member)?;
            self.count += 1;
        }
        commit(txn)
    }

    /// Finds array `number` by its name and copies its record out.
    pub fn read(&self, number: u64) -> Result<Vec<u8>> {
        let txn = begin(self.env, ffi::MDB_RDONLY)?;
        let name = name(number, false);
        let mut key = [0; 64];
        key[..8].copy_from_slice(&self.rows.parent);
        key[8..8 + name.len()].copy_from_slice(name.as_bytes());
        let member = get(txn, self.names, &key[..8 + name.len()])?;
        let oid = u64::from_le_bytes(member[1..9].try_into()?);
        let record = get(txn, self.objects, &oid.to_be_bytes())?.to_vec();
        // SAFETY: `txn` is live and not used again; `record` is a copy.
        unsafe { ffi::mdb_txn_abort(txn) };
        Ok(record)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: the environment is open and no transaction on it is left.
        unsafe { ffi::mdb_env_close(self.env) };
    }
}

/// Bytes in a catalog: of the pages that its tables have, and up to its last page.
pub fn catalog_bytes(path: &Path) -> Result<(f64, f64)> {
    let env = open(path, ffi::MDB_RDONLY | ffi::MDB_NOLOCK)?;
    let txn = begin(env, ffi::MDB_RDONLY)?;
    let mut pages = 2;
    for name in TABLES {
        // SAFETY: zero is a valid `MDB_stat`, which holds only integers.
        let mut stat: ffi::MDB_stat = unsafe { std::mem::zeroed() };
        // SAFETY: `txn` is live, the table was opened in it, `stat` is ours.
        check(unsafe { ffi::mdb_stat(txn, table(txn, name, 0)?, &raw mut stat) })?;
        pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    // SAFETY: zero is a valid `MDB_envinfo`, which holds only integers and a pointer.
    let mut info: ffi::MDB_envinfo = unsafe { std::mem::zeroed() };
    // SAFETY: `env` is open and `info` is ours.
    check(unsafe { ffi::mdb_env_info(env, &raw mut info) })?;
    // SAFETY: both are live, and neither is used again.
    unsafe {
        ffi::mdb_txn_abort(txn);
        ffi::mdb_env_close(env);
    }
    Ok((pages as f64 * PAGE_BYTES, (info.me_last_pgno + 1) as f64 * PAGE_BYTES))
}

fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(format!("LMDB refused with code {code}").into()) }
}

fn open(folder: &Path, flags: u32) -> Result<*mut ffi::MDB_env> {
    let path = CString::new(folder.as_os_str().as_encoded_bytes())?;
    let mut env = ptr::null_mut();
    // SAFETY: `env` is ours; each call gets the environment that the first one made, and a path
    // that ends with NUL.
    unsafe {
        check(ffi::mdb_env_create(&raw mut env))?;
        check(ffi::mdb_env_set_mapsize(env, MAP_BYTES))?;
        check(ffi::mdb_env_set_maxdbs(env, TABLES.len() as u32))?;
        check(ffi::mdb_env_open(env, path.as_ptr(), flags, FILE_MODE))?;
    }
    Ok(env)
}

fn begin(env: *mut ffi::MDB_env, flags: u32) -> Result<*mut ffi::MDB_txn> {
    let mut txn = ptr::null_mut();
    // SAFETY: `env` is open and `txn` is ours.
    check(unsafe { ffi::mdb_txn_begin(env, ptr::null_mut(), flags, &raw mut txn) })?;
    Ok(txn)
}

fn commit(txn: *mut ffi::MDB_txn) -> Result<()> {
    // SAFETY: `txn` is live and its owner does not use it again.
    check(unsafe { ffi::mdb_txn_commit(txn) })
}

fn table(txn: *mut ffi::MDB_txn, name: &str, flags: u32) -> Result<ffi::MDB_dbi> {
    let name = CString::new(name)?;
    let mut dbi = 0;
    // SAFETY: `txn` is live, the name ends with NUL, `dbi` is ours.
    check(unsafe { ffi::mdb_dbi_open(txn, name.as_ptr(), flags, &raw mut dbi) })?;
    Ok(dbi)
}

fn value(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

fn put(txn: *mut ffi::MDB_txn, dbi: ffi::MDB_dbi, key: &[u8], row: &[u8]) -> Result<()> {
    let (mut key, mut row) = (value(key), value(row));
    // SAFETY: `txn` is live and the table is its environment's; LMDB copies key and row.
    check(unsafe { ffi::mdb_put(txn, dbi, &raw mut key, &raw mut row, 0) })
}

fn get<'txn>(txn: *mut ffi::MDB_txn, dbi: ffi::MDB_dbi, key: &[u8]) -> Result<&'txn [u8]> {
    let (mut key, mut row) = (value(key), value(&[]));
    // SAFETY: as in `put`; the row stays as it is until the transaction's end, which every caller
    // outlives it by.
    unsafe {
        check(ffi::mdb_get(txn, dbi, &raw mut key, &raw mut row))?;
        Ok(std::slice::from_raw_parts(row.mv_data.cast(), row.mv_size))
    }
}

fn last(txn: *mut ffi::MDB_txn, dbi: ffi::MDB_dbi) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut key, mut row) = (value(&[]), value(&[]));
    let mut cursor = ptr::null_mut();
    // SAFETY: `txn` is live; key and row point into its snapshot until it ends, and are copied.
    unsafe {
        check(ffi::mdb_cursor_open(txn, dbi, &raw mut cursor))?;
        check(ffi::mdb_cursor_get(cursor, &raw mut key, &raw mut row, ffi::MDB_LAST))?;
        let copied = (
            std::slice::from_raw_parts(key.mv_data.cast::<u8>(), key.mv_size).to_vec(),
            std::slice::from_raw_parts(row.mv_data.cast::<u8>(), row.mv_size).to_vec(),
        );
        ffi::mdb_cursor_close(cursor);
        Ok(copied)
    }
}
