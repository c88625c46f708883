//! Addresses, networks and locations.

use std::net::IpAddr;

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::url::Url;
use super::value::{Special, Value};

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "ip" => ip,
        "isIP" => |args| is(args, |text| parse_ip(text).is_ok()),
        "ip.isCanonical" => is_canonical,
        "family" => |args| of_ip(args, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |args| of_ip(args, |ip| Value::Bool(ip.is_unspecified())),
        "isLoopback" => |args| of_ip(args, |ip| Value::Bool(ip.is_loopback())),
        "isLinkLocalMulticast" => |args| of_ip(args, |ip| Value::Bool(is_link_local_multicast(ip))),
        "isLinkLocalUnicast" => |args| of_ip(args, |ip| Value::Bool(is_link_local(ip))),
        "isGlobalUnicast" => |args| of_ip(args, |ip| Value::Bool(is_global(ip))),
        "cidr" => cidr,
        "isCIDR" => |args| is(args, |text| parse_cidr(text).is_ok()),
        "containsIP" => contains_ip,
        "containsCIDR" => contains_cidr,
        "masked" => masked,
        "prefixLength" => prefix_length,
        "url" => url,
        "isURL" => |args| is(args, |text| Url::parse(text).is_ok()),
        "getScheme" => |args| of_url(args, |url| Value::text(url.scheme.as_str())),
        "getHost" => |args| of_url(args, |url| Value::text(url.host.as_str())),
        "getHostname" => |args| of_url(args, |url| Value::text(url.hostname())),
        "getPort" => |args| of_url(args, |url| Value::text(url.port())),
        "getEscapedPath" => |args| of_url(args, |url| Value::text(url.path.as_str())),
        "getQuery" => |args| of_url(args, query),
        _ => return None,
    })
}

fn is<'a>(args: &[Value<'a>], test: fn(&str) -> bool) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(test(text.as_str()))),
        _ => unfit(),
    }
}

fn special<'v>(value: Option<&'v Value<'_>>) -> Option<&'v Special> {
    match value {
        Some(Value::Special(special)) => Some(special),
        _ => None,
    }
}

fn of_ip<'a>(args: &[Value<'a>], part: fn(&IpAddr) -> Value<'static>) -> Evaluated<'a> {
    match special(args.first()) {
        Some(Special::Ip(ip)) => Ok(part(ip)),
        _ => unfit(),
    }
}

fn of_url<'a>(args: &[Value<'a>], part: fn(&Url) -> Value<'static>) -> Evaluated<'a> {
    match special(args.first()) {
        Some(Special::Url(url)) => Ok(part(url)),
        _ => unfit(),
    }
}

fn query(url: &Url) -> Value<'static> {
    let list = |values: Vec<String>| Value::list(values.into_iter().map(Value::text).collect());
    let entries = url.parameters().into_iter().map(|(key, values)| (Value::text(key), list(values)));
    Value::map(entries.collect())
}

/// An address without a zone, and not one kind within the other.
fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    let plain = text.split_once('%');
    if let Some((address, _)) = plain.filter(|(address, zone)| address.contains(':') && !zone.is_empty())
        && address.parse::<IpAddr>().is_ok()
    {
        return Err(EvalError::failed(format!("IP address {text:?} with zone value is not allowed")));
    }
    let ip: IpAddr = text.parse().map_err(|_| {
        let why = format!("ParseAddr({text:?}): {}", unparsable(text));
        EvalError::failed(format!("IP Address {text:?} parse error during conversion from string: {why}"))
    })?;
    match ip {
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => {
            Err(EvalError::failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        _ => Ok(ip),
    }
}

/// Why Go can't read an address.
fn unparsable(text: &str) -> String {
    let Some(at) = text.find(['.', ':', '%']) else { return "unable to parse IP".to_owned() };
    match text.as_bytes()[at] {
        b'%' => "missing IPv6 address".to_owned(),
        b':' => "colon must be followed by more characters".to_owned(),
        _ => unparsable_v4(text),
    }
}

fn unparsable_v4(text: &str) -> String {
    let (mut value, mut digits, mut position) = (0u32, 0, 0);
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if byte.is_ascii_digit() {
            if digits == 1 && value == 0 {
                return "IPv4 field has octet with leading zero".to_owned();
            }
            value = value * 10 + u32::from(byte - b'0');
            digits += 1;
            if value > 255 {
                return "IPv4 field has value >255".to_owned();
            }
        } else if *byte == b'.' {
            if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' {
                return format!("IPv4 field must have at least one digit (at {:?})", &text[at..]);
            }
            if position == 3 {
                return "IPv4 address too long".to_owned();
            }
            (position, value, digits) = (position + 1, 0, 0);
        } else {
            return format!("unexpected character (at {:?})", &text[at..]);
        }
    }
    "IPv4 address too short".to_owned()
}

fn ip<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match (args, special(args.first())) {
        ([Value::String(text)], _) => parse_ip(text.as_str()).map(|ip| Value::special(Special::Ip(ip))),
        (_, Some(Special::Cidr(ip, _))) => Ok(Value::special(Special::Ip(*ip))),
        _ => unfit(),
    }
}

fn is_canonical<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(parse_ip(text.as_str())?.to_string() == text.as_str())),
        _ => unfit(),
    }
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_global(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local(ip))
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), EvalError> {
    let wrong = |why: &str| {
        let message =
            format!("network address parse error during conversion from string: netip.ParsePrefix({text:?}): {why}");
        Err(EvalError::failed(message))
    };
    let Some((address, bits)) = text.rsplit_once('/') else { return wrong("no '/'") };
    let ip: IpAddr = match address.parse() {
        Ok(ip) => ip,
        Err(_) => return wrong(&format!("ParseAddr({address:?}): {}", unparsable(address))),
    };
    let shape = bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| shape) else {
        return wrong(&format!("bad bits after slash: {bits:?}"));
    };
    if bits > if ip.is_ipv4() { 32 } else { 128 } {
        return wrong("prefix length out of range");
    }
    match ip {
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => {
            Err(EvalError::failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        _ => Ok((ip, bits)),
    }
}

fn cidr<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => {
            let parsed = parse_cidr(text.as_str()).map_err(|error| {
                EvalError::failed(format!("network address parse error during conversion from string: {error}"))
            });
            parsed.map(|(ip, bits)| Value::special(Special::Cidr(ip, bits)))
        }
        _ => unfit(),
    }
}

/// The address with all bits behind the first few cleared.
fn mask(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)).into()),
        IpAddr::V6(ip) => {
            IpAddr::V6((u128::from(ip) & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)).into())
        }
    }
}

fn holds(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    network.is_ipv4() == ip.is_ipv4() && mask(network, bits) == mask(ip, bits)
}

fn contains_ip<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (Some(Special::Cidr(network, bits)), Some(other)) = (special(args.first()), args.get(1)) else {
        return unfit();
    };
    let ip = match other {
        Value::String(text) => parse_ip(text.as_str())?,
        other => match special(Some(other)) {
            Some(Special::Ip(ip)) => *ip,
            _ => return unfit(),
        },
    };
    Ok(Value::Bool(holds(*network, *bits, ip)))
}

fn contains_cidr<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (Some(Special::Cidr(network, bits)), Some(other)) = (special(args.first()), args.get(1)) else {
        return unfit();
    };
    let (ip, other) = match other {
        Value::String(text) => parse_cidr(text.as_str())?,
        other => match special(Some(other)) {
            Some(Special::Cidr(ip, bits)) => (*ip, *bits),
            _ => return unfit(),
        },
    };
    Ok(Value::Bool(*bits <= other && holds(*network, *bits, ip)))
}

fn masked<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match special(args.first()) {
        Some(Special::Cidr(ip, bits)) => Ok(Value::special(Special::Cidr(mask(*ip, *bits), *bits))),
        _ => unfit(),
    }
}

fn prefix_length<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match special(args.first()) {
        Some(Special::Cidr(_, bits)) => Ok(Value::Int((*bits).into())),
        _ => unfit(),
    }
}

fn url<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => match Url::parse(text.as_str()) {
            Ok(url) => Ok(Value::special(Special::Url(url))),
            Err(why) => Err(EvalError::failed(format!("URL parse error during conversion from string: {why}"))),
        },
        _ => unfit(),
    }
}
