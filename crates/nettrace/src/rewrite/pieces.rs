//! A trace written as several, each complete in itself.

use std::vec::Vec;

use hashbrown::HashMap;

use super::{RewriteError, RewriteOptions, RewriteReport, Rewriter};
use crate::{Item, ThreadRow, TraceInfo, WriteFormat};

/// Writes what a reader gives as one trace after another. Each has the header of the source, the descriptions that its
/// events need, and numbers its events anew in each thread; what was lost shows in the piece where the gap is. No event
/// is left out at a cut or given twice, and [`super::join`] makes one trace of the pieces again.
///
/// Takes the items of a [`crate::Reader`] of V4 to V6. The bytes of the piece at hand gather in
/// [`Pieces::output`], from where the caller takes them.
#[derive(Debug)]
pub struct Pieces {
    info: TraceInfo,
    options: RewriteOptions,
    rewriter: Rewriter,
}

impl Pieces {
    /// Begins the first piece.
    pub fn new(info: &TraceInfo, format: WriteFormat) -> Pieces {
        let options = RewriteOptions::new(format);
        Pieces {
            info: info.clone(),
            rewriter: Rewriter::new(info, &options),
            options,
        }
    }

    /// Writes an item to the piece at hand.
    ///
    /// # Errors
    /// If the format cannot hold a description.
    pub fn item(&mut self, item: &Item<'_>) -> Result<(), RewriteError> {
        self.rewriter.item(item)
    }

    /// The bytes of the piece at hand that the caller has not taken yet.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.rewriter.writer.output()
    }

    /// Ends the piece at hand and begins the next. Gives the bytes that are missing to the end of the piece, and what
    /// became of it; [`Pieces::output`] holds the beginning of the next one. `row` gives the reader's threads
    /// ([`crate::Reader::thread`]), which V6 has to name anew.
    pub fn cut(&mut self, row: impl Fn(u64) -> Option<ThreadRow>) -> (Vec<u8>, RewriteReport) {
        let mut next = Rewriter::new(&self.info, &self.options);
        let known = self.rewriter.threads.known();
        let rows: HashMap<u64, ThreadRow> =
            known.filter_map(|name| Some((name, row(name)?))).collect();
        next.threads.continue_from(&self.rewriter.threads, rows);
        next.newest = self.rewriter.newest;
        let ended = std::mem::replace(&mut self.rewriter, next);
        end(ended)
    }

    /// Ends the last piece; as [`Pieces::cut`].
    pub fn finish(self) -> (Vec<u8>, RewriteReport) {
        end(self.rewriter)
    }
}

fn end(mut rewriter: Rewriter) -> (Vec<u8>, RewriteReport) {
    rewriter.point_at_end();
    rewriter.writer.finish();
    rewriter.report.threads_renamed = rewriter.threads.renamed();
    (std::mem::take(rewriter.writer.output()), rewriter.report)
}
