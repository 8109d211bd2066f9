"""What a check found: how many things it looked at, and what must not be, with the evidence."""


class Found:
    def __init__(self):
        self.looked = 0
        self.violations = []

    def look(self, number=1):
        self.looked += number

    def violation(self, text, *evidence):
        self.violations.append((text, evidence))
