//! The arena of a pool that is being made of another: where each value goes, and the files.
//!
//! Values are laid out longest first, so that large ones keep their alignment and no hole is left.
//! What is published lies in as many spans as a publisher would make, all else in one.

use std::cmp::Reverse;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::MovedValue;
use engram_base::error::{Error, Result};
use engram_base::scope::Scope;
use engram_files::folder;
use engram_media::filesystem::Mount;
use engram_media::span;
use engram_pool::published;
use engram_realm::Setup;
use engram_records::extent::{Extent, HUGE, PAGE, best_align, round_up};
use engram_space::extent::Span;

/// The spans of a copy, and their files.
#[derive(Default)]
pub(super) struct NewSpans {
    pub rows: Vec<Span>,
    pub files: Vec<(PathBuf, File)>,
}

impl NewSpans {
    /// Makes the files for the values of a realm, which end at `end`, in the folder of a pool.
    pub(super) fn make(setup: &Setup, pool: &Path, mount: &Mount, end: u64) -> Result<Self> {
        let folder = setup.spans_on(pool);
        let published = setup.scope == Scope::Published;
        let most = if published { published::SPAN_MAX } else { end };
        let mut spans = NewSpans::default();
        let mut offset = 0;
        while offset < end {
            let number = spans.rows.len() as u32;
            let range = Extent { offset, len: most.min(end - offset) };
            let path = folder.join(format!("span-{number}"));
            let file = span::create(&path, range.len, setup.file_mode, mount)?;
            folder::hand_over(&file, &path)?;
            spans.rows.push(Span { number, device: 0, range, file: number, place: 0 });
            spans.files.push((path, file));
            offset = range.end();
        }
        Ok(spans)
    }

    pub(super) fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        let first = self.rows.partition_point(|span| span.range.end() <= offset);
        for (span, (path, file)) in self.rows.iter().zip(&self.files).skip(first) {
            let (now, rest) = bytes.split_at(bytes.len().min((span.range.end() - offset) as usize));
            file.write_all_at(now, offset - span.range.offset)
                .map_err(|e| Error::os(format!("writing {}", path.display()), &e))?;
            offset += now.len() as u64;
            bytes = rest;
            if bytes.is_empty() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.files.iter().try_for_each(|(path, file)| {
            file.sync_all().map_err(|e| Error::os(format!("syncing {}", path.display()), &e))
        })
    }
}

/// Says where each value goes; where the arena ends then.
pub(super) fn lay_out(values: &mut [MovedValue], limit: u64) -> u64 {
    values.sort_unstable_by_key(|value| (Reverse(value.from.len), value.from.offset));
    let mut end = 0;
    for most in [HUGE, PAGE] {
        end = 0;
        for value in &mut *values {
            value.to = round_up(end, best_align(value.from.len).min(most));
            end = value.place().end();
        }
        end = round_up(end, HUGE);
        if end <= limit {
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::{MovedValue, NewSpans, Span, lay_out};
    use engram_catalog::Table;
    use engram_records::extent::{Extent, HUGE, PAGE, best_align};
    use std::fs::{self, File};

    fn values(lens: &[u64]) -> Vec<MovedValue> {
        let value = |(number, len): (usize, &u64)| MovedValue {
            table: Table::Objects,
            key: vec![number as u8],
            from: Extent { offset: number as u64 * 64 * HUGE, len: *len },
            nbytes: *len,
            word: 0,
            head: None,
            to: 0,
        };
        lens.iter().enumerate().map(value).collect()
    }

    #[test]
    fn a_copy_has_its_values_side_by_side_and_each_where_its_length_may_begin() {
        let lens = [64, 3 * HUGE + PAGE, 0x1_0000, 128, HUGE, 5 * PAGE];
        let mut found = values(&lens);
        let end = lay_out(&mut found, u64::MAX);
        let mut places: Vec<Extent> = found.iter().map(MovedValue::place).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[0].end() <= two[1].offset), "{places:?}");
        assert!(places.iter().all(|place| place.offset % best_align(place.len) == 0));
        assert!(places.last().unwrap().end() <= end && end.is_multiple_of(HUGE));

        // Where that does not fit, values of huge pages begin at a page, and less is left between.
        let tight = lay_out(&mut found, end - 1);
        assert!(tight < end, "{tight} is no less than {end}");
        assert!(found.iter().all(|value| value.to % best_align(value.from.len).min(PAGE) == 0));
    }

    #[test]
    fn a_value_is_written_across_the_spans_that_it_reaches_into() {
        let dir = tempfile::tempdir().unwrap();
        let mut spans = NewSpans::default();
        for (number, (offset, len)) in [(0, 10), (10, 4), (14, 20)].into_iter().enumerate() {
            let path = dir.path().join(number.to_string());
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            let (number, range) = (number as u32, Extent { offset, len });
            spans.rows.push(Span { number, device: 0, range, file: number, place: 0 });
            spans.files.push((path, file));
        }
        spans.write_at(b"0123456789", 7).unwrap();
        let read = |number: usize| fs::read(&spans.files[number].0).unwrap();
        assert_eq!(read(0), b"\0\0\0\0\0\0\x00012");
        assert_eq!([read(1), read(2)], [b"3456".to_vec(), b"789".to_vec()]);
    }
}
