//! Which part of a body a request asks for.

use crate::message::{Content, FileRange, Headers, Method, Response};

/// What a `Range` header asks for, of a body of a known length.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// All of it: there is no range, or one that need not be understood.
    All,
    /// So many bytes from there.
    Part { from: u64, len: u64 },
    /// Bytes that are not there.
    Beyond,
}

/// The response to what was asked: a part of the handler's, a refusal, or the handler's own.
pub(crate) fn apply(method: Method, asked: &Headers, response: Response) -> Response {
    if response.status != 200 || !matches!(method, Method::Get | Method::Head) {
        return response;
    }
    let etag = response.headers.get("etag");
    if let (Some(wanted), Some(etag)) = (asked.get("if-match"), etag)
        && !matches(wanted, etag)
    {
        let text = format!("what lies here is {etag} now, not {wanted}");
        return Response::new(412, text).with("ETag", etag);
    }
    let (Method::Get, Some(len)) = (method, response.content.length()) else { return response };
    match asked.get("range").map_or(Asked::All, |range| parse(range, len)) {
        Asked::All => response.with("Accept-Ranges", "bytes"),
        Asked::Beyond => Response::new(416, format!("there are {len} bytes"))
            .with("Content-Range", format!("bytes */{len}")),
        Asked::Part { from, len: part } => {
            let last = from + part - 1;
            let content = cut(response.content, from, part);
            Response { status: 206, content, ..response }
                .with("Content-Range", format!("bytes {from}-{last}/{len}"))
        }
    }
}

fn matches(wanted: &str, etag: &str) -> bool {
    wanted.split(',').map(str::trim).any(|one| one == "*" || one == etag)
}

fn parse(range: &str, len: u64) -> Asked {
    let Some((from, to)) = range.trim().strip_prefix("bytes=").and_then(|r| r.split_once('-'))
    else {
        return Asked::All;
    };
    // No sign is a digit, though a number is parsed with one.
    let number = |text: &str| text.bytes().all(|d| d.is_ascii_digit()).then(|| text.parse().ok());
    let number = |text: &str| number(text.trim()).flatten();
    match (number(from), number(to)) {
        (Some(from), last) if last.is_some() || to.trim().is_empty() => {
            let last: u64 = last.unwrap_or(u64::MAX).min(len.saturating_sub(1));
            match (last.checked_sub(from), from < len) {
                (Some(more), true) => Asked::Part { from, len: more + 1 },
                // A range that runs backwards is none.
                _ if from < len => Asked::All,
                _ => Asked::Beyond,
            }
        }
        (None, Some(0)) if from.trim().is_empty() => Asked::Beyond,
        (None, Some(tail)) if from.trim().is_empty() => {
            let part: u64 = tail;
            let part = part.min(len);
            if part == 0 { Asked::Beyond } else { Asked::Part { from: len - part, len: part } }
        }
        // Several ranges, or none that can be read: the whole is a right answer.
        _ => Asked::All,
    }
}

fn cut(content: Content, from: u64, len: u64) -> Content {
    match content {
        Content::Bytes(mut bytes) => {
            bytes.drain(..from as usize);
            bytes.truncate(len as usize);
            Content::Bytes(bytes)
        }
        Content::File(range) => {
            Content::File(FileRange { offset: range.offset + from, len, ..range })
        }
        Content::Stream { chunks, .. } => {
            let chunks = Box::new(Cut { chunks, skip: from, left: len });
            Content::Stream { len: Some(len), chunks }
        }
    }
}

/// A part of a stream: what is before it is made, and not sent.
struct Cut {
    chunks: crate::message::Chunks,
    skip: u64,
    left: u64,
}

impl Iterator for Cut {
    type Item = std::io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            let mut chunk = match self.chunks.next()? {
                Ok(chunk) => chunk,
                Err(error) => return Some(Err(error)),
            };
            let skipped = self.skip.min(chunk.len() as u64);
            chunk.drain(..skipped as usize);
            chunk.truncate(self.left.min(chunk.len() as u64) as usize);
            self.skip -= skipped;
            self.left -= chunk.len() as u64;
            if !chunk.is_empty() {
                return Some(Ok(chunk));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        let part = |from, len| Asked::Part { from, len };
        for (range, found) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-5", part(2, 4)),
            ("bytes=2-", part(2, 8)),
            ("bytes=2-99", part(2, 8)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-99", part(0, 10)),
            ("bytes=10-", Asked::Beyond),
            ("bytes=10-12", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=5-2", Asked::All),
            ("bytes=0-1,4-5", Asked::All),
            ("bytes=+1-2", Asked::All),
            ("bytes=-", Asked::All),
            ("bytes=99999999999999999999-", Asked::All),
            ("lines=1-2", Asked::All),
        ] {
            assert_eq!(parse(range, 10), found, "{range}");
        }
        assert_eq!(parse("bytes=0-", 0), Asked::Beyond);
    }

    #[test]
    fn a_part_of_a_stream_is_the_part_of_its_bytes() {
        let whole: Vec<u8> = (0..100).collect();
        for (from, len) in [(0, 100), (7, 1), (30, 41), (99, 1)] {
            let chunks: Vec<_> = whole.chunks(7).map(|c| Ok(c.to_vec())).collect();
            let content = Content::Stream { len: Some(100), chunks: Box::new(chunks.into_iter()) };
            let Content::Stream { chunks, .. } = cut(content, from, len) else {
                panic!("a stream")
            };
            let got: Vec<u8> = chunks.flat_map(Result::unwrap).collect();
            assert_eq!(got, whole[from as usize..(from + len) as usize]);
        }
    }
}
