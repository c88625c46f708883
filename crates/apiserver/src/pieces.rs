//! Long answers, written piece by piece from shared objects.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use setpoint_store::Object;

use crate::body::Body;

/// Size of a piece: large enough that writing it is cheap, small enough that it is still in the processor's cache when it is
/// encrypted, and that many readers don't fill the memory.
pub const PIECE_BYTES: usize = 32 * 1024;

/// The items of a list between its head and `]}`, as a line. Of each object the first `skip` bytes (what it is) are left out, but for
/// the brace.
pub fn list(head: Vec<u8>, items: Vec<Arc<Object>>, skip: usize) -> Body {
    let separators = items.len().saturating_sub(1);
    let content: usize = items.iter().map(|object| object.json().len() - skip + 1).sum();
    let length = head.len() + content + separators + TAIL.len();
    let pieces = Pieces { head: Some(head), items: items.into_iter(), skip, first: true, left: length as u64 };
    pieces.map_err(|never| match never {}).boxed_unsync()
}

/// What a list ends with.
const TAIL: &[u8] = b"]}\n";

struct Pieces {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Object>>,
    skip: usize,
    first: bool,
    left: u64,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = self.head.take().unwrap_or_default();
        piece.reserve((self.left as usize).min(PIECE_BYTES + PIECE_BYTES / 4));
        while piece.len() < PIECE_BYTES {
            let Some(object) = self.items.next() else {
                piece.extend_from_slice(TAIL);
                break;
            };
            if !std::mem::replace(&mut self.first, false) {
                piece.push(b',');
            }
            piece.push(b'{');
            piece.extend_from_slice(&object.json()[self.skip..]);
        }
        self.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
