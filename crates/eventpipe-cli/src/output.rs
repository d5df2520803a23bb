//! Output files: never over an existing file unasked, and under the final name only when complete.
//!
//! Recordings are the exception: they grow under their final name, because a recording is readable
//! at any length and must survive the death of the tool.

use crate::exit_code::{ExitCode, Failure};
use crate::input;
use crate::signals;
use crate::table::{self, is_control};
use anyhow::Context as _;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

/// Where a recording goes: a file that grows under its final name, or standard output.
#[derive(Debug)]
pub(crate) struct RecordingFile {
    file: Option<File>,
    path: PathBuf,
    /// Whether the file was made by us and may be removed while it is empty.
    is_new: bool,
}

impl RecordingFile {
    /// Begins a recording; `-` is standard output. Without `force` an existing file is an error.
    pub(crate) fn create(path: &Path, force: bool) -> Result<RecordingFile, Failure> {
        let path = path.to_owned();
        if path.as_os_str() == "-" {
            refuse_terminal()?;
            return Ok(RecordingFile {
                file: None,
                path,
                is_new: false,
            });
        }
        check_free(&path, force)?;
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.write(true);
        // A device or pipe is written to as it is; a file is begun anew.
        if force {
            options.create(true).truncate(true)
        } else {
            options.create_new(true)
        };
        let file = options
            .open(&path)
            .map_err(|error| cannot_write(&path, error))?;
        Ok(RecordingFile {
            file: Some(file),
            path,
            is_new,
        })
    }

    /// The name of a recording that consists of several files; there is no file of this name.
    pub(crate) fn of_several(path: &Path) -> RecordingFile {
        RecordingFile {
            file: None,
            path: path.to_owned(),
            is_new: false,
        }
    }

    /// Begins a recording under a default name; `_2`, `_3`… is added while the name is taken.
    pub(crate) fn create_default(name: &str) -> Result<RecordingFile, Failure> {
        let stem = default_stem(name);
        let mut path = PathBuf::from(format!("{stem}.nettrace"));
        for number in 2..100 {
            if !path.exists() {
                break;
            }
            path = PathBuf::from(format!("{stem}_{number}.nettrace"));
        }
        RecordingFile::create(&path, false)
    }

    /// A handle to write with.
    pub(crate) fn writer(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match &self.file {
            Some(file) => Box::new(file.try_clone()?),
            None => Box::new(io::stdout()),
        })
    }

    /// The file, if it is a regular one.
    pub(crate) fn regular(&mut self) -> Option<&mut File> {
        self.file
            .as_mut()
            .filter(|file| file.metadata().is_ok_and(|found| found.is_file()))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How it is called in messages, in one line.
    pub(crate) fn name(&self) -> String {
        table::printable(&input::path_text(&self.path, "standard output"))
    }

    /// Removes the file again if it was made here and nothing was written.
    pub(crate) fn remove_empty(&self) {
        let is_empty = |file: &File| file.metadata().is_ok_and(|found| found.len() == 0);
        if self.is_new && self.file.as_ref().is_some_and(is_empty) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Removes the file again, because nothing was recorded.
    pub(crate) fn discard(self) {
        if self.is_new && self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The beginning of the default name of a recording of this process: `NAME_yyyyMMdd_HHmmss`.
pub(crate) fn default_stem(name: &str) -> String {
    let safe: String = name
        .chars()
        .map(|c| if c == '/' || is_control(c) { '_' } else { c })
        .collect();
    format!("{safe}_{}", crate::human::file_time())
}

/// Whether a recording could be made at this path; to be asked before anything is started.
pub(crate) fn check(path: &Path, force: bool) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return refuse_terminal();
    }
    check_free(path, force)?;
    if directory_of(path).is_dir() {
        Ok(())
    } else {
        Err(cannot_write(path, io::ErrorKind::NotFound.into()))
    }
}

/// Whether several files can be made whose names come from this path. A directory has no such name, and beside a device
/// nobody wants them.
pub(crate) fn check_beside(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(not_a_file(path)),
        Ok(found) if !found.is_file() => {
            let text = format!(
                "cannot write {}: it is a device or a pipe, and several files are to be made",
                path.display()
            );
            Err(Failure::new(ExitCode::Output, text))
        }
        _ if path.file_name().is_none() => Err(not_a_file(path)),
        _ => Ok(()),
    }
}

/// A file that is written under a temporary name beside its final one and renamed when complete;
/// or standard output for `-`. Dropped unfinished, or ended by a signal, it leaves nothing behind.
/// A device or a pipe is written to as it is: a file in its place would be another's loss.
#[derive(Debug)]
pub(crate) struct WholeFile {
    writer: Option<BufWriter<Box<dyn WriteDebug>>>,
    unfinished: Option<Unfinished>,
    path: PathBuf,
}

/// A file under its temporary name, and the name that it gets.
#[derive(Debug)]
struct Unfinished {
    temporary: PathBuf,
    place: PathBuf,
}

/// What a [`WholeFile`] writes to.
pub(crate) trait WriteDebug: Write + std::fmt::Debug {}
impl<T: Write + std::fmt::Debug> WriteDebug for T {}

impl WholeFile {
    /// Begins a file. Without `force` an existing file is an error.
    pub(crate) fn create(path: &Path, force: bool) -> anyhow::Result<WholeFile> {
        let (writer, unfinished): (Box<dyn WriteDebug>, _) = if path.as_os_str() == "-" {
            refuse_terminal()?;
            (Box::new(io::stdout().lock()), None)
        } else {
            check_free(path, force)?;
            match place_of(path) {
                None => (Box::new(open_as_it_is(path)?), None),
                Some(place) => {
                    let (file, temporary) = begin_beside(path, &place)?;
                    (Box::new(file), Some(Unfinished { temporary, place }))
                }
            }
        };
        Ok(WholeFile {
            writer: Some(BufWriter::with_capacity(1 << 20, writer)),
            unfinished,
            path: path.to_owned(),
        })
    }

    /// Writes everything out and gives the file its name.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.flush().context(self.failure())?;
        }
        if let Some(Unfinished { temporary, place }) = self.unfinished.take() {
            let renamed = std::fs::rename(&temporary, place);
            if renamed.is_err() {
                let _ = std::fs::remove_file(&temporary);
            }
            renamed.context(self.failure())?;
        }
        Ok(())
    }

    /// The error to hang on a failed write.
    pub(crate) fn failure(&self) -> Failure {
        Failure::new(
            ExitCode::Output,
            format!("cannot write {}", self.path.display()),
        )
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer
            .as_mut()
            .map_or(Ok(0), |writer| writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = std::fs::remove_file(&unfinished.temporary);
        }
    }
}

/// Where a file is put in whole: links are followed, and stay. `None` for what is no file and is written to as it is.
fn place_of(path: &Path) -> Option<PathBuf> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => path.canonicalize().ok(),
        Ok(_) => None,
        Err(_) => Some(path.to_owned()),
    }
}

fn open_as_it_is(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    file.map_err(|error| cannot_write(path, error))
}

/// A new file beside its place, under a temporary name.
fn begin_beside(path: &Path, place: &Path) -> Result<(File, PathBuf), Failure> {
    let name = place.file_name().ok_or_else(|| not_a_file(path))?;
    let temporary = place.with_file_name(unfinished(name));
    let unfinished = temporary.clone();
    // Before there is a file. Without handlers a signal leaves the file, as SIGKILL does.
    let _ = signals::forward(move |signal| {
        let _ = std::fs::remove_file(&unfinished);
        signals::end_by(signal);
    });
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .map_err(|error| cannot_write(path, error))?;
    Ok((file, temporary))
}

/// An output error that names the file.
pub(crate) fn cannot_write(path: &Path, error: io::Error) -> Failure {
    let text = format!(
        "cannot write {}: {}",
        path.display(),
        cause_at(path, &error)
    );
    Failure::new(ExitCode::Output, text)
}

/// The same, where the path can be looked at: the system says "no such file" of a directory that takes none, too.
fn cause_at(path: &Path, error: &io::Error) -> String {
    let is_path = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    );
    if !is_path {
        return cause(error);
    }
    let parent = directory_of(path);
    match std::fs::metadata(parent) {
        Ok(found) if found.is_dir() => {
            format!("no file can be made in {}", parent.display())
        }
        Ok(_) => format!("{} is no directory", parent.display()),
        Err(_) => cause(&io::ErrorKind::NotFound.into()),
    }
}

/// Where a file would lie.
fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().unwrap_or(Path::new("/"));
    if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    }
}

/// Why a file could not be written, with the remedy where the system's words have none.
pub(crate) fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "it exists already (--force writes over it)".to_owned(),
        io::ErrorKind::NotFound => "the directory does not exist".to_owned(),
        _ => error.to_string(),
    }
}

/// The name that a file has until it is complete.
pub(crate) fn unfinished(name: &OsStr) -> OsString {
    let mut unfinished = OsString::from(".");
    unfinished.push(name);
    unfinished.push(format!(".{}.part", std::process::id()));
    unfinished
}

/// A path derived from an input's: `a/b.nettrace` with `v6` gives `a/b.v6.nettrace`.
pub(crate) fn sibling(input: &Path, infix: &str) -> PathBuf {
    if input.as_os_str() == "-" {
        return PathBuf::from(format!("trace.{infix}.nettrace"));
    }
    with_infix(input, infix, Some("nettrace".as_ref()))
}

/// A path with something in front of its extension, or of the one given; names that are not UTF-8 stay what they are.
pub(crate) fn with_infix(path: &Path, infix: &str, extension: Option<&OsStr>) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{infix}."));
    name.push(
        extension
            .or(path.extension())
            .unwrap_or("nettrace".as_ref()),
    );
    path.with_file_name(name)
}

fn check_free(path: &Path, force: bool) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(not_a_file(path)),
        Ok(_) if !force => Err(cannot_write(path, io::ErrorKind::AlreadyExists.into())),
        _ => Ok(()),
    }
}

/// A trace is nothing to look at, and its bytes may do anything to a terminal.
fn refuse_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        let text = "a trace is not written to a terminal: pass it to a program or a file (`-o - | …`, `-o - > …`)";
        return Err(Failure::new(ExitCode::Output, text));
    }
    Ok(())
}

fn not_a_file(path: &Path) -> Failure {
    Failure::new(
        ExitCode::Output,
        format!("cannot write {}: it is a directory", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_leaves_nothing_behind_and_a_finished_one_has_its_name() {
        let directory =
            std::env::temp_dir().join(format!("eventpipe-output-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.nettrace");
        let mut file = WholeFile::create(&path, false).unwrap();
        file.write_all(b"abc").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        let mut file = WholeFile::create(&path, false).unwrap();
        file.write_all(b"abc").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        let error = WholeFile::create(&path, false).unwrap_err();
        assert_eq!(Failure::code_of(&error), ExitCode::Output);
        assert!(WholeFile::create(&path, true).is_ok());
        let error = RecordingFile::create(&path, false).unwrap_err();
        assert!(error.to_string().contains("exists already"));
        let error = RecordingFile::create(&directory, true).unwrap_err();
        assert!(error.to_string().contains("directory"));
        let recording = RecordingFile::create(&directory.join("b"), false).unwrap();
        recording.discard();
        assert!(!directory.join("b").exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_sibling_keeps_the_directory() {
        assert_eq!(
            sibling(Path::new("a/b.nettrace"), "v6"),
            Path::new("a/b.v6.nettrace")
        );
        use std::os::unix::ffi::OsStrExt as _;
        let path = |bytes| Path::new(OsStr::from_bytes(bytes));
        assert_eq!(
            sibling(path(b"\xff.x"), "v6"),
            path(b"\xff.v6.nettrace"),
            "as it is, not as it is shown"
        );
        assert_eq!(
            with_infix(Path::new("a/b.x"), "7", None),
            Path::new("a/b.7.x")
        );
    }
}
