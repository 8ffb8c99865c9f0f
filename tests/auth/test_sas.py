"""SAS tokens: taken apart, signed, compared."""

import base64
import hashlib
import hmac
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.auth.refusal import MALFORMED_TOKEN, AuthRefusal
from peeklock.auth.sas import (
    TOKEN_LENGTH_MAX,
    ParsedSasToken,
    covers,
    decode_until_stable,
    generate_sas,
    is_jwt,
    is_sas,
    parse_sas,
    resource_path,
)

KEY = "c2VjcmV0LWtleS1vZi10aGlydHktdHdvLWJ5dGVzLi4="


def parsed(text: str) -> ParsedSasToken:
    token = parse_sas(text)
    assert isinstance(token, ParsedSasToken), token
    return token


def signature(text: str, key: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def test_a_generated_token_is_signed_with_its_key_and_no_other() -> None:
    token = parsed(generate_sas("sb://localhost/q1", "root", KEY, 1_700_000_000_999))
    assert (token.resource, token.rule_name) == ("sb%3A%2F%2Flocalhost%2Fq1", "root")
    assert token.expires_at == 1_700_000_000_000
    assert token.is_signed_with(KEY)
    assert not token.is_signed_with(KEY[:-1])
    assert not token.is_signed_with("")


def test_a_known_token_has_its_known_signature() -> None:
    # Computed apart from this program, with openssl dgst -sha256 -hmac.
    token = generate_sas("sb://localhost/q1", "root", "SAS_KEY_VALUE", 1_700_000_000_000)
    assert "sig=7uC0%2FDMOgD0fYMO7DPR%2F1mA%2F9PZopAFcJDcN1hsXK%2Bc%3D&" in token


def test_the_resource_is_signed_as_it_stands_in_the_token() -> None:
    # The JavaScript admin client encodes in lower case, signs the query, and orders otherwise.
    resource = "https%3a%2f%2fhost%2fq1%3fapi-version%3d2021-05"
    sig = quote(signature(f"{resource}\n1700000000", KEY), safe="")
    token = parsed(f"SharedAccessSignature sig={sig}&se=1700000000&skn=root&sr={resource}")
    assert token.is_signed_with(KEY)
    assert resource_path(token.resource) == "q1"


def test_a_signature_may_keep_its_plus_and_slash_unencoded() -> None:
    for number in range(200):
        resource = f"sb%3A%2F%2Fh%2Fq{number}"
        sig = signature(f"{resource}\n1", KEY)
        assert parsed(
            f"SharedAccessSignature sr={resource}&sig={sig}&se=1&skn=root"
        ).is_signed_with(KEY)


def test_a_rule_name_encoded_twice_is_decoded_twice() -> None:
    name = quote_plus(quote_plus("send/only rule+1").replace("+", "%20"))
    token = parsed(f"SharedAccessSignature sr=a&sig=b&se=1&skn={name}")
    assert token.rule_name == "send/only rule+1"


def test_the_word_in_front_is_read_in_any_case_and_unknown_parameters_are_ignored() -> None:
    assert parsed("sharedaccesssignature sr=a&sig=b&se=1&skn=c&x=y").rule_name == "c"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "begin"),
        ("Bearer abc", "begin"),
        ("SharedAccessSignature", "begin"),
        ("SharedAccessSignature ", "no value"),
        ("SharedAccessSignature sr", "'sr' has no value"),
        ("SharedAccessSignature sr=a&sr=a&sig=b&se=1&skn=c", "'sr' is given twice"),
        ("SharedAccessSignature sig=b&se=1&skn=c", "'sr' is missing"),
        ("SharedAccessSignature sr=a&se=1&skn=c", "'sig' is missing"),
        ("SharedAccessSignature sr=a&sig=b&skn=c", "'se' is missing"),
        ("SharedAccessSignature sr=a&sig=b&se=1", "'skn' is missing"),
        ("SharedAccessSignature sr=a&sig=&se=1&skn=c", "'sig' is missing"),
        ("SharedAccessSignature sr=a&sig=b&se=soon&skn=c", "'se' is not"),
        ("SharedAccessSignature sr=a&sig=b&se=-1&skn=c", "'se' is not"),
        ("SharedAccessSignature sr=a&sig=b&se=1.5&skn=c", "'se' is not"),
        ("SharedAccessSignature sr=a&sig=b&se=\u0663&skn=c", "'se' is not"),
        (f"SharedAccessSignature sr=a&sig=b&se={'9' * 13}&skn=c", "'se' is not"),
        ("SharedAccessSignature " + "a" * TOKEN_LENGTH_MAX, "characters"),
    ],
)
def test_what_is_no_token_is_refused_with_what_is_wrong(text: str, what: str) -> None:
    token = parse_sas(text)
    assert isinstance(token, AuthRefusal)
    assert token.reason == MALFORMED_TOKEN
    assert what in token.text


@given(st.text(max_size=200))
def test_nothing_a_client_sends_breaks_the_parser(text: str) -> None:
    assert isinstance(parse_sas(text), (AuthRefusal, ParsedSasToken))
    assert isinstance(parse_sas("SharedAccessSignature " + text), (AuthRefusal, ParsedSasToken))


@given(resource=st.text(min_size=1, max_size=60), name=st.text(min_size=1), key=st.text())
def test_every_generated_token_is_read_back(resource: str, name: str, key: str) -> None:
    token = parsed(generate_sas(resource, name, key, 1_700_000_000_000))
    assert token.is_signed_with(key)
    assert token.rule_name == decode_until_stable(name)
    assert resource_path(token.resource) == resource_path(resource)


def test_a_token_never_shows_its_signature() -> None:
    token = parsed(generate_sas("sb://h/q", "root", KEY, 1_000))
    assert token.signature not in repr(token)


def test_the_kind_is_told_by_content() -> None:
    assert is_sas("SharedAccessSignature sr=a")
    assert not is_sas("eyJhbGciOi.eyJhdWQi.c2ln")
    assert is_jwt("eyJhbGciOi.eyJhdWQi.c2ln-_x")
    assert is_jwt("Bearer eyJhbGciOi.eyJhdWQi.c2ln")
    assert not is_jwt("SharedAccessSignature sr=sb%3A%2F%2Fa.b.c")
    assert not is_jwt("a..b")
    assert not is_jwt("a.b")


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("sb://localhost/q1", "q1"),
        ("sb://localhost:5672/q1/", "q1"),
        ("amqps://Some.Host/Orders/$management", "orders/$management"),
        ("sb%3A%2F%2Flocalhost%3A15672%2Fq1", "q1"),
        ("https%3a%2f%2fhost%2fq1%3fapi-version%3d2021-05", "q1"),
        ("https://localhost:5300", ""),
        ("https://localhost:5300/?api-version=1/2", ""),
        ("https://localhost?next=http://x/q1", ""),
        ("sb://[::1]:5672/a/b", "a/b"),
        ("sb%253A%252F%252Fh%252FQ%25201", "q 1"),
        ("q1", "q1"),
        ("/Q1//x/", "q1/x"),
        ("q1?x=sb://host/q2", "q1"),
        ("q1/9://host/q2", "q1/9:/host/q2"),
        ("", ""),
    ],
)
def test_a_resource_is_reduced_to_its_path(resource: str, path: str) -> None:
    assert resource_path(resource) == path


def test_what_is_encoded_without_end_takes_no_time() -> None:
    """Eight times are undone, and not the tens of thousands that fit into an address."""
    assert resource_path("%" + "25" * 7 + "71") == "q"
    assert resource_path("%" + "25" * 30_000 + "71") == "%" + "25" * 29_992 + "71"


def test_a_path_covers_itself_and_what_lies_below() -> None:
    assert covers("", "anything/at/all")
    assert covers("q1", "q1")
    assert covers("q1", "q1/$management")
    assert not covers("q1", "q10")
    assert not covers("q1/$management", "q1")
    assert not covers("q1", "")
