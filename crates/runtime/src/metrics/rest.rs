//! What is counted of requests to the API server.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use setpoint_api::metrics::{Bounds, Counter, Exposition, Family, Histogram};
use tokio::time::Instant;
use tower::Service;

/// The buckets of client-go.
struct RequestSeconds;

impl Bounds for RequestSeconds {
    const SECONDS: &'static [f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
}

/// By code and method, and by method. There is no host among the labels: a manager talks to one API server.
#[derive(Default)]
pub(super) struct RestFigures {
    requests: Family<(String, &'static str), Counter>,
    seconds: Family<&'static str, Histogram<RequestSeconds>>,
}

impl RestFigures {
    fn record(&self, method: &Method, code: String, seconds: f64) {
        let method = known(method);
        self.requests.get(&(code, method)).add(1);
        self.seconds.get(&method).record(seconds);
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        out.family("rest_client_requests_total", "counter", "Requests to the API server by status code and method.");
        for ((code, method), counter) in self.requests.all() {
            out.sample("", &[("code", &code), ("method", method)], counter.value());
        }
        out.family("rest_client_request_duration_seconds", "histogram", "Seconds until the API server answered.");
        for (verb, histogram) in self.seconds.all() {
            histogram.write(&[("verb", verb)], out);
        }
    }
}

fn known(method: &Method) -> &'static str {
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("other")
}

pub(super) fn counted(inner: &Client, figures: Arc<RestFigures>) -> Client {
    let namespace = inner.default_namespace().to_owned();
    Client::new(CountingService { inner: inner.clone(), figures }, namespace)
}

struct CountingService {
    inner: Client,
    figures: Arc<RestFigures>,
}

impl Service<Request<Body>> for CountingService {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, figures) = (self.inner.clone(), Arc::clone(&self.figures));
        async move {
            let (method, began) = (request.method().clone(), Instant::now());
            let answer = inner.send(request).await;
            // `<error>` is what client-go counts where there was no answer.
            let code = answer.as_ref().map_or_else(|_| "<error>".to_owned(), |it| it.status().as_u16().to_string());
            figures.record(&method, code, began.elapsed().as_secs_f64());
            answer
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tower::BoxError;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_code_and_method() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/broken" => Err(BoxError::from("cut off")),
                _ => Ok(Response::builder().status(404).body(Body::empty()).unwrap()),
            }
        });
        let metrics = Metrics::new();
        let client = metrics.client(&Client::new(service, "default"));
        for path in ["/gone", "/gone", "/broken"] {
            let _ = client.send(Request::get(path).body(Body::empty()).unwrap()).await;
        }
        let text = metrics.text();
        for line in [
            r#"rest_client_requests_total{code="404",method="GET"} 2"#,
            r#"rest_client_requests_total{code="<error>",method="GET"} 1"#,
            r#"rest_client_request_duration_seconds_count{verb="GET"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }
}
