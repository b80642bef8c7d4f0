//! What media may hold, as bytes from anywhere: the doors that `make fuzz` knocks at.
//!
//! Each takes bytes and decodes them as the engine does when it meets them in a row or a page, and
//! then looks at all that it has decoded. Nothing comes back: the promise is that none of it
//! panics, reads beyond the bytes, or goes on for ever. In builds with the feature `faults` alone.

use crate::verify;
use engram_base::dtype::DType;
use engram_base::error::Result;
use engram_base::id::{Member, split_name_key};
use engram_base::name::{Name, Path};
use engram_columns::runs;
use engram_columns::segment::{Bitmap, Column, SealedRows, Segment, SegmentLayout, SoughtTexts};
use engram_columns::zone::Zone;
use engram_files::pool_file::PoolFile;
use engram_index::IndexSettings;
use engram_index::family::Family;
use engram_index::tail;
use engram_ops::chunk_rows::{segment as segment_of_file, split_key};
use engram_ops::group_times::GroupTimes;
use engram_ops::links::split_orphan;
use engram_records::attrs;
use engram_records::chunked::codec::Worker;
use engram_records::chunked::grid::Grid;
use engram_records::object::{Record, Stored};
use engram_records::properties::Properties;
use engram_records::segmented::HeadFacts;
use engram_space::extent::{Span, parse_free, parse_size_key};

/// Chunks beyond this length take more time to decode than they tell.
const CHUNK_BYTES: usize = 1 << 16;

/// A record: head, shape, dtype, dimensions, attributes, value; of a chunked array also its codec,
/// which decodes the row's own bytes.
///
/// # Panics
///
/// If a record that decodes, encoded, decodes to another.
pub fn record(row: &[u8]) {
    let Ok(record) = Record::parse(row) else { return };
    let _ = (record.check(), record.decode_dtype(), record.decode_dims(), record.decode_shape());
    let _ = Properties::parse(record.properties);
    for entry in attrs::entries(record.attrs).flatten() {
        let _ = entry.decode();
    }
    if let Ok(Some(grid)) = Grid::find(&record)
        && let Stored::Chunked(chunking) = record.stored
        && grid.chunk_bytes() <= CHUNK_BYTES
    {
        let mut chunk = vec![0; grid.chunk_bytes()];
        let _ = Worker::new(chunking.codec, grid.item).decode(row, &mut chunk);
    }
    let encoded = record.encode();
    assert_eq!(Record::parse(&encoded), Ok(record));
}

/// A dtype.
///
/// # Panics
///
/// If a dtype that decodes, encoded, decodes to another.
pub fn dtype(bytes: &[u8]) {
    let Ok((dtype, used)) = DType::decode(bytes) else { return };
    assert!(used <= bytes.len());
    let (_, _) = (dtype.text(), dtype.itemsize());
    let mut encoded = Vec::new();
    dtype.encode(&mut encoded);
    assert_eq!(DType::decode(&encoded), Ok((dtype, encoded.len())));
}

/// A row of any table but those of records, and of segments and runs, which need two.
pub fn row(key: &[u8], value: &[u8]) {
    let _ = (split_name_key(key), Member::from_row(value), split_key(key));
    let _ = (parse_free(key, value), parse_size_key(key), Span::from_row(0, value));
    let _ = IndexSettings::parse(value).map(|settings| settings.check());
    let _ = Family::parse(key, value);
    let _ = tail::decode(key, value);
    let _ = (HeadFacts::parse(value), Properties::parse(value), GroupTimes::parse(value));
    let _ = (segment_of_file(7, key, value), split_orphan(value));
    for zone in value.as_chunks().0 {
        let _ = Zone::decode(zone).map(|zone| zone.constant());
    }
}

/// A segment's head, and one block of its columns.
pub fn segment(head: &[u8], block: &[u8]) {
    let Ok(segment) = Segment::parse(head) else { return };
    let _ = (segment.oids(), segment.position(7), segment.groups().count());
    for entry in segment.columns().flatten() {
        let _ = column(&Column::parse(&entry, block));
    }
    let _ = united(head, block, segment.len());
}

fn column(column: &Result<Column<'_>>) -> Result<()> {
    let Ok(column) = column else { return Ok(()) };
    let _ = (column.presence().count(), column.unsure().count());
    column.test(&|_| true, None)?;
    let ranges = vec![("a".to_owned(), Some("b".to_owned()))];
    column.seek(&SoughtTexts { ranges, parts: vec!["abc".to_owned()] }, &|_| true, None)?;
    for position in 0..column.len() {
        column.cell(position)?;
    }
    Ok(())
}

/// A segment whose rows are to be in another.
fn united(head: &[u8], block: &[u8], rows: usize) -> Result<()> {
    let mut sealed = SealedRows::default();
    sealed.add(head.to_vec(), vec![block.to_vec()], Bitmap::new(rows))?;
    if let Some(mut gathered) = sealed.gather(SegmentLayout::default())? {
        let _ = (gathered.signatures().len(), gathered.build()?);
    }
    Ok(())
}

/// A run's head, and one of its blocks.
pub fn run(head: &[u8], block: &[u8]) {
    let _ = runs::decode(head, block);
}

/// A page of a catalog, as a page of a tree and as a meta page.
pub fn page(page: &[u8]) {
    verify::decode_page(page);
}

/// Text from a user, or from a file of a pool.
pub fn text(text: &str) {
    let _ = (Name::new(text), Path::new(text));
    let _ = toml::from_str::<PoolFile>(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{dtype, page, record, row, run, segment, text};

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(
            one in prop::collection::vec(any::<u8>(), 0..200),
            two in prop::collection::vec(any::<u8>(), 0..200), words in ".{0,60}",
        ) {
            record(&one);
            dtype(&one);
            row(&one, &two);
            segment(&one, &two);
            run(&one, &two);
            page(&one);
            text(&words);
        }
    }
}
