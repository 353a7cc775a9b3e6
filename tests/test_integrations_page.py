"""The page of real clients is made of the results that are kept, and has every client."""

import integration_results


def test_the_page_is_current():
    rows = integration_results.read(integration_results.KEPT)
    assert rows == integration_results.merge(rows, ())
    forms = integration_results.read_forms(integration_results.KEPT_FORMS)
    assert forms == integration_results.merge_forms(forms, ())
    assert integration_results.PAGE.read_text(encoding="utf-8") == integration_results.page(rows, forms)


def test_every_client_has_rows():
    rows = {(row.kind, row.client, row.api) for row in integration_results.read(integration_results.KEPT)}
    clients = integration_results.CLIENTS
    assert rows == {(client.kind, name, api) for client in clients for api, name in client.packages.items()}


def test_every_program_is_a_client():
    programs = {path.stem for path in (integration_results.KEPT.parent / "clients").glob("*.*")}
    shared = {"run_ways", "weather_tool"}
    assert programs - shared == {client.program for client in integration_results.CLIENTS if client.kind != "agent"}


def test_every_program_on_forms_has_rows():
    programs = {path.stem for path in (integration_results.KEPT.parent / "forms").glob("*_forms.*")}
    rows = integration_results.read_forms(integration_results.KEPT_FORMS)
    assert programs == {row.program for row in rows} == {each.program for each in integration_results.FORM_CLIENTS}
