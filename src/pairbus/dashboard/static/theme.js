// Before the first paint: the theme that was chosen here, if one was.
const chosen = localStorage.getItem("pairbus-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
