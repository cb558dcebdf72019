"""Ids in place of those that another user has."""

from proxy.domain.core import Scope, own_id


def test_an_id_stays_the_same_from_version_to_version_whatever_the_project():
    for project in (None, "apollo"):
        assert own_id(Scope("default", "alice", project), "mem_b1") == "mem_a5e61b1e94c7a089351a2728"


def test_every_tenant_user_and_id_has_its_own_id_even_with_lone_surrogates():
    scopes = [Scope(tenant, user) for tenant in ("a", "b") for user in ("anna", "ben")]
    made = {own_id(scope, id_) for scope in scopes for id_ in ("mem_1", "mem_2", "mem_\ud800")}
    assert len(made) == 12
