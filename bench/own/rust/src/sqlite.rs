//! `SQLite` with the best indexes that we could give it.
//!
//! One table has a row for each object and a column for each key, each with an index of its own;
//! its group has one with the count of attributes, so that sums are answered from it alone; paths
//! have an FTS5 trigram index. Nothing is synced, the file is mapped, statements are prepared.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::Result;
use crate::corpus::{Corpus, Item};

/// A database with a corpus in it.
pub struct Sqlite {
    pub connection: Connection,
    path: PathBuf,
    /// Seconds for each object to put it in, indexes included.
    pub taken_s: f64,
}

impl Sqlite {
    pub fn create(path: &Path, corpus: &Corpus, synced: bool) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(if synced {
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        } else {
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
        })?;
        connection.execute_batch(
            "PRAGMA mmap_size = 34359738368; PRAGMA cache_size = -1000000;
             PRAGMA temp_store = MEMORY; PRAGMA locking_mode = EXCLUSIVE;",
        )?;
        let start = Instant::now();
        connection.execute_batch(&schema(corpus))?;
        fill(&connection, corpus)?;
        let taken_s = start.elapsed().as_secs_f64() / corpus.len() as f64;
        connection.execute_batch("ANALYZE;")?;
        Ok(Sqlite { connection, path: path.to_owned(), taken_s })
    }

    /// Indexes for the questions that name several keys at once; their bytes are counted apart.
    pub fn index_together(&self, keys: &[&str]) -> Result<()> {
        let keys: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
        let sql = format!("CREATE INDEX IF NOT EXISTS together ON objects({})", keys.join(", "));
        self.connection.execute_batch(&format!("{sql}; ANALYZE;"))?;
        Ok(())
    }

    /// Bytes of the pages of all indexes, of names too; the rows themselves are not counted.
    pub fn index_bytes(&self) -> Result<f64> {
        let sql = "SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name <> 'objects'";
        Ok(self.connection.query_row(sql, [], |row| row.get::<_, i64>(0))? as f64)
    }

    /// The rows that a query finds.
    pub fn ids(&self, sql: &str) -> Result<Vec<i64>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The one number that a query gives.
    pub fn number(&self, sql: &str) -> Result<i64> {
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0))
    }

    /// Closes and removes it.
    pub fn remove(self) -> Result<()> {
        drop(self.connection);
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            if Path::new(&path).exists() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn schema(corpus: &Corpus) -> String {
    let columns: Vec<String> = corpus.columns.iter().map(|c| quoted(&c.name)).collect();
    let indexes = columns.iter().enumerate();
    let indexes = indexes.map(|(place, name)| format!("CREATE INDEX i{place} ON objects({name});"));
    format!(
        "CREATE TABLE objects(_id INTEGER PRIMARY KEY, _group TEXT, _path TEXT, _count INTEGER, {});
         CREATE INDEX groups ON objects(_group, _count);
         CREATE VIRTUAL TABLE paths USING fts5(_path, content='objects', content_rowid='_id',
             tokenize='trigram case_sensitive 1', columnsize=0);
         {}",
        columns.join(", "),
        indexes.collect::<String>()
    )
}

fn fill(connection: &Connection, corpus: &Corpus) -> Result<()> {
    connection.execute_batch("BEGIN")?;
    let marks = vec!["?"; corpus.columns.len() + 4].join(", ");
    let mut put = connection.prepare(&format!("INSERT INTO objects VALUES({marks})"))?;
    let mut name = connection.prepare("INSERT INTO paths(rowid, _path) VALUES(?, ?)")?;
    for place in 0..corpus.len() {
        let path = corpus.path(place);
        let group = path.rsplit_once('/').map_or("", |(group, _)| group);
        let mut values = vec![
            Value::Integer(place as i64),
            Value::Text(group.to_owned()),
            Value::Text(path.clone()),
            Value::Integer(corpus.attributes(place).count() as i64),
        ];
        values.extend(corpus.columns.iter().map(|column| match column.of(place) {
            None => Value::Null,
            Some(Item::Int(value)) => Value::Integer(*value),
            Some(Item::Float(value)) => Value::Real(*value),
            Some(Item::Text(text)) => Value::Text(text.clone()),
        }));
        put.execute(params_from_iter(values))?;
        name.execute((place as i64, path))?;
    }
    drop((put, name));
    connection.execute_batch("COMMIT; INSERT INTO paths(paths) VALUES('optimize');")?;
    Ok(())
}
