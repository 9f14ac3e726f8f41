"""The ledger of the monitoring tests, and a browser."""

import shutil

import pytest

from ..monitoring.conftest import ago, entity, scene

__all__ = ["ago", "entity", "scene"]


def find_chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


@pytest.fixture(scope="module")
def browser():
    """Chromium, headless, that talks to nobody but the test."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path,
            args=[
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
            ],
        )
        yield running
        running.close()
