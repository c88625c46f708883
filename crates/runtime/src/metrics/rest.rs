//! What is counted of requests to the API server.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::{Body as _, Frame};
use kube::Client;
use kube::client::Body;
use setpoint_api::metrics::{Bounds, Counter, Exposition, Family, Histogram};
use tokio::time::Instant;
use tower::Service;

use crate::throttle::{Throttle, put_off};

/// The buckets of client-go.
struct RequestSeconds;

impl Bounds for RequestSeconds {
    const SECONDS: &'static [f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
}

/// The buckets of client-go.
struct SizeBytes;

impl Bounds for SizeBytes {
    // Bytes are whole.
    const PARTS: f64 = 1.0;
    const SECONDS: &'static [f64] =
        &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
}

/// By code and method, and by method.
#[derive(Default)]
pub(super) struct RestFigures {
    /// Which API server it is; a manager talks to one.
    host: OnceLock<String>,
    requests: Family<(String, &'static str), Counter>,
    seconds: Family<&'static str, Histogram<RequestSeconds>>,
    /// How long requests waited for their turn, where there is a limit.
    waits: Family<&'static str, Histogram<RequestSeconds>>,
    retries: Family<(String, &'static str), Counter>,
    request_bytes: Family<&'static str, Histogram<SizeBytes>>,
    response_bytes: Family<&'static str, Histogram<SizeBytes>>,
}

impl RestFigures {
    pub(super) fn set_host(&self, host: &str) {
        // Who said it first made the clients.
        let _ = self.host.set(host.to_owned());
    }

    fn record(&self, verb: &'static str, code: String, seconds: f64) {
        self.requests.get(&(code, verb)).add(1);
        self.seconds.get(&verb).record(seconds);
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        let host = self.host.get().map_or("", String::as_str);
        out.family("rest_client_requests_total", "counter", "Requests to the API server by status code and method.");
        for ((code, method), counter) in self.requests.all() {
            out.sample("", &[("code", &code), ("host", host), ("method", method)], counter.value());
        }
        out.family("rest_client_request_duration_seconds", "histogram", "Seconds until the API server answered.");
        for (verb, histogram) in self.seconds.all() {
            histogram.write(&[("verb", verb), ("host", host)], out);
        }
        let waits = "Seconds that requests waited here for their turn; none are told where there is no limit.";
        out.family("rest_client_rate_limiter_duration_seconds", "histogram", waits);
        for (verb, histogram) in self.waits.all() {
            histogram.write(&[("verb", verb), ("host", host)], out);
        }
        let retries = "Requests that were sent again because the server had put them off, by its answer.";
        out.family("rest_client_request_retries_total", "counter", retries);
        for ((code, verb), counter) in self.retries.all() {
            out.sample("", &[("code", &code), ("verb", verb), ("host", host)], counter.value());
        }
        out.family("rest_client_request_size_bytes", "histogram", "Bytes of the bodies of requests.");
        for (verb, histogram) in self.request_bytes.all() {
            histogram.write(&[("verb", verb), ("host", host)], out);
        }
        out.family("rest_client_response_size_bytes", "histogram", "Bytes of the bodies of answers, watches apart.");
        for (verb, histogram) in self.response_bytes.all() {
            histogram.write(&[("verb", verb), ("host", host)], out);
        }
    }
}

/// The body of an answer, counted as it is read and noted when it is done with.
struct CountedBody {
    inner: Body,
    verb: &'static str,
    bytes: u64,
    /// Where to note it; a watch has no size, for it goes on.
    figures: Option<Arc<RestFigures>>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if let Some(figures) = &self.figures {
            figures.response_bytes.get(&self.verb).record(self.bytes as f64);
        }
    }
}

fn known(method: &Method) -> &'static str {
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("other")
}

pub(super) fn counted(inner: &Client, figures: Arc<RestFigures>, throttle: Throttle) -> Client {
    let namespace = inner.default_namespace().to_owned();
    Client::new(CountingService { inner: inner.clone(), figures, throttle }, namespace)
}

#[derive(Clone)]
struct CountingService {
    inner: Client,
    figures: Arc<RestFigures>,
    throttle: Throttle,
}

impl CountingService {
    /// Sends a request, and again when the server wants it later.
    async fn pass(self, mut request: Request<Body>) -> Result<Response<CountedBody>, kube::Error> {
        let verb = known(request.method());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let mut sent_again = 0;
        loop {
            let spare = self.throttle.spare(&request, sent_again);
            if let Some(wait) = self.throttle.pass().await {
                self.figures.waits.get(&verb).record(wait.as_secs_f64());
            }
            let (code, answer) = self.send(verb, request).await;
            let put_off = answer.as_ref().ok().and_then(|answer| put_off(answer.status(), answer.headers()));
            let (Some(wait), Some(spare)) = (put_off, spare) else {
                let figures = (!is_watch).then_some(self.figures);
                return answer.map(|answer| answer.map(|inner| CountedBody { inner, verb, bytes: 0, figures }));
            };
            drop(answer);
            self.figures.retries.get(&(code, verb)).add(1);
            tokio::time::sleep(wait).await;
            request = spare;
            sent_again += 1;
        }
    }

    /// Sends it once; the code that it is counted under comes with the answer.
    async fn send(&self, verb: &'static str, request: Request<Body>) -> (String, Result<Response<Body>, kube::Error>) {
        let began = Instant::now();
        if let Some(bytes) = request.body().size_hint().exact() {
            self.figures.request_bytes.get(&verb).record(bytes as f64);
        }
        let answer = self.inner.send(request).await;
        // `<error>` is what client-go counts where there was no answer.
        let code = answer.as_ref().map_or_else(|_| "<error>".to_owned(), |it| it.status().as_u16().to_string());
        self.figures.record(verb, code.clone(), began.elapsed().as_secs_f64());
        (code, answer)
    }
}

impl Service<Request<Body>> for CountingService {
    type Response = Response<CountedBody>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<CountedBody>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().pass(request).boxed()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tower::BoxError;

    use super::*;
    use crate::metrics::Metrics;
    use crate::throttle::ClientOptions;

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_code_and_method_with_their_sizes() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/broken" => Err(BoxError::from("cut off")),
                _ => Ok(Response::builder().status(404).body(Body::from(b"no such thing".to_vec())).unwrap()),
            }
        });
        let metrics = Metrics::new();
        let client = metrics.client(&Client::new(service, "default"));
        metrics.host("10.0.0.1:6443");
        for path in ["/gone", "/gone", "/broken", "/gone?watch=true"] {
            let _ = client
                .send(Request::get(path).body(Body::empty()).unwrap())
                .await
                .map(|answer| answer.into_body().collect().now_or_never().unwrap().unwrap());
        }
        let _ = client.send(Request::post("/gone").body(Body::from(vec![b'x'; 100])).unwrap()).await;
        let text = metrics.text();
        for line in [
            r#"rest_client_requests_total{code="404",host="10.0.0.1:6443",method="GET"} 3"#,
            r#"rest_client_requests_total{code="<error>",host="10.0.0.1:6443",method="GET"} 1"#,
            r#"rest_client_request_duration_seconds_count{verb="GET",host="10.0.0.1:6443"} 4"#,
            r#"rest_client_request_size_bytes_bucket{verb="POST",host="10.0.0.1:6443",le="64"} 0"#,
            r#"rest_client_request_size_bytes_bucket{verb="POST",host="10.0.0.1:6443",le="256"} 1"#,
            r#"rest_client_request_size_bytes_sum{verb="POST",host="10.0.0.1:6443"} 100"#,
            // Two answers of thirteen bytes: a broken one has none, a watch no size.
            r#"rest_client_response_size_bytes_sum{verb="GET",host="10.0.0.1:6443"} 26"#,
            r#"rest_client_response_size_bytes_count{verb="GET",host="10.0.0.1:6443"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_the_server_puts_off_are_sent_again_at_the_pace_of_the_limit() {
        let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                let body = request.into_body().collect().await?.to_bytes();
                // Two answers put it off, then it is taken.
                let answer = match number {
                    0 | 1 => Response::builder().status(429).header("retry-after", "2"),
                    _ => Response::builder().status(201),
                };
                Ok::<_, BoxError>(answer.body(Body::from(body)).unwrap())
            }
        });
        let metrics = Metrics::new();
        let options = ClientOptions { qps: Some(0.25), burst: 1, ..ClientOptions::default() };
        let client = metrics.throttled(&Client::new(service, "default"), &Throttle::new(&options));
        let begin = Instant::now();
        let request = Request::post("/things").body(Body::from(b"thing".to_vec())).unwrap();
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.status(), 201);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "thing", "the same body each time");
        assert_eq!(begin.elapsed(), std::time::Duration::from_secs(8), "the limit is slower than the server asks for");
        let text = metrics.text();
        for line in [
            r#"rest_client_requests_total{code="429",host="",method="POST"} 2"#,
            r#"rest_client_requests_total{code="201",host="",method="POST"} 1"#,
            r#"rest_client_request_retries_total{code="429",verb="POST",host=""} 2"#,
            r#"rest_client_rate_limiter_duration_seconds_count{verb="POST",host=""} 3"#,
            r#"rest_client_rate_limiter_duration_seconds_sum{verb="POST",host=""} 4"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }
}
