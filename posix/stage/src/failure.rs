//! What a stage does about an error: it leaves one file out, or it ends.

use std::io;

use engram_fs::Errno;

use crate::progress::Progress;

/// Something that went wrong.
pub(crate) enum Failure {
    /// With one file: all others go on.
    One(String),
    /// With the pool, or the file system outside: nobody can go on.
    All(Errno),
}

/// What can fail so.
pub(crate) type Done<T> = Result<T, Failure>;

impl Failure {
    /// As an error of one who does nothing else.
    pub fn into_error(self) -> engram::Error {
        match self {
            Failure::One(why) => engram::Error::new(engram::Kind::Os, why),
            Failure::All(error) => error.into(),
        }
    }

    /// Takes it down, of something with this path.
    pub fn note(self, progress: &Progress, path: &str) {
        match self {
            Failure::One(why) => progress.trouble(path, why),
            Failure::All(error) => {
                let message = format!("{path}: {}", error.message);
                progress.fail(Errno::new(error.code, message).into());
            }
        }
    }
}

/// Whether a file system with such an error has no room, or is gone, for all files alike.
fn ends_all(code: i32) -> bool {
    use libc::{EDQUOT, EIO, ENODEV, ENOSPC, ENOTCONN, EROFS, ESHUTDOWN};
    [ENOSPC, EDQUOT, EROFS, EIO, ENODEV, ENOTCONN, ESHUTDOWN].contains(&code)
}

/// Of what is read outside: a source that fails concerns itself alone.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::One(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Failure {
        io::Error::from(error).into()
    }
}

/// Of what is done in the pool.
impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        if ends_all(error.code) { Failure::All(error) } else { Failure::One(error.message) }
    }
}

impl From<engram::Error> for Failure {
    fn from(error: engram::Error) -> Failure {
        Errno::from(error).into()
    }
}

/// Of what is written outside, where the file system may have no room, or be gone.
pub(crate) fn outside(error: impl Into<io::Error>) -> Failure {
    let error = error.into();
    match error.raw_os_error() {
        Some(code) if ends_all(code) => Failure::All(Errno::new(code, error.to_string())),
        _ => Failure::One(error.to_string()),
    }
}

/// What is said of a name that something else has.
pub(crate) fn is_there(path: &str) -> Failure {
    Failure::One(format!(
        "{path} is there already, and is another file: pass --overwrite to replace it, or --update \
         if the newer one is to stay"
    ))
}

/// What is said of a file that a stop has left half copied.
pub(crate) fn stopped() -> Failure {
    Failure::One("is not whole: the stage was stopped; resume it".to_owned())
}
