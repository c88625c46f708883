//! gzip for long answers, for clients that take it.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;

use crate::body::{Body, BoxError};

/// From this size on an answer is compressed: below, the work costs more than the bytes.
const BYTES_MIN: u64 = 128 * 1024;

/// Whether the client takes gzip.
pub fn is_taken(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        matches!(parts.next(), Some("gzip" | "*"))
            && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Compresses an answer whose length is known and long. A watch has no length, so it is never held back.
pub fn compress(request: &HeaderMap, response: Response<Body>) -> Response<Body> {
    let length = response.body().size_hint().exact().unwrap_or(0);
    if length < BYTES_MIN || response.headers().contains_key(CONTENT_ENCODING) || !is_taken(request) {
        return response;
    }
    let mut response = response.map(|body| Gzip { body, encoder: Some(encoder()) }.boxed_unsync());
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn encoder() -> GzEncoder<Vec<u8>> {
    // What clients wait for is the answer, not the last percent of its size.
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// A body, compressed piece by piece: what is held is one piece.
struct Gzip {
    body: Body,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl HttpBody for Gzip {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        while let Some(encoder) = &mut this.encoder {
            let written = std::mem::take(encoder.get_mut());
            if !written.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(written.into()))));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(context)).transpose()? {
                Some(frame) => encoder.write_all(&frame.into_data().unwrap_or_default())?,
                None => {
                    let rest = this.encoder.take().map(GzEncoder::finish).transpose()?.unwrap_or_default();
                    return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
                }
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::body::full;

    fn headers(accept: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accept))])
    }

    #[tokio::test]
    async fn a_long_answer_is_the_same_after_gzip() {
        let text: String = (0..40_000).map(|i| format!("item {i} ")).collect();
        let answer = compress(&headers("gzip"), Response::new(full(text.clone())));
        assert_eq!(answer.headers()[CONTENT_ENCODING], "gzip");
        let packed = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(packed.len() < text.len() / 2, "{} of {}", packed.len(), text.len());
        let mut unpacked = String::new();
        GzDecoder::new(&*packed).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
    }

    #[test]
    fn short_answers_and_clients_that_refuse_get_it_plain() {
        let long = || Response::new(full(vec![b'x'; 1 << 20]));
        for (accept, response) in [("gzip", Response::new(full("short"))), ("gzip;q=0", long()), ("br", long())] {
            let answer = compress(&headers(accept), response);
            assert!(!answer.headers().contains_key(CONTENT_ENCODING), "{accept}");
        }
    }
}
